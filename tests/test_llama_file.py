"""llama_file.py: names in both directions and settings that are never guessed."""

import pytest
from llama_writers import in_folder, in_gguf, small_model

from tiny_lm.formats.llama_file import IN_FOLDER, IN_GGUF, Settings, names_in_file
from tiny_lm.model import ModelConfig


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("where", "written"), [(IN_GGUF, in_gguf), (IN_FOLDER, in_folder)])
def test_every_tensor_has_one_name(where, written, tied):
    model = small_model(tied=tied)
    found = written(model)
    names = names_in_file("X", model.config, where, found)
    assert names.keys() == model.state_dict().keys()
    assert set(names.values()) == set(found)
    shapes = {our: tuple(found[their].shape) for our, their in names.items()}
    assert shapes == {name: tuple(t.shape) for name, t in model.state_dict().items()}


def test_missing_and_left_over_tensors_are_named():
    found = set(in_gguf(small_model())) - {"blk.1.ffn_up.weight"} | {"blk.0.attn_q.bias"}
    message = (
        r"X: expected the 20 tensors of its config, "
        r"got 1 missing: blk.1.ffn_up.weight; 1 left over: blk.0.attn_q.bias"
    )
    with pytest.raises(ValueError, match=message):
        names_in_file("X", small_model().config, IN_GGUF, found)


def test_a_number_of_layers_that_lies_makes_no_list_of_names():
    with pytest.raises(
        ValueError, match=r"X: expected tensors for 1000000000000 layers, got 1 ten"
    ):
        names_in_file("X", ModelConfig(n_layers=10**12), IN_GGUF, ["token_embd.weight"])


settings = Settings("X", {"n": 3, "f": 0.5, "null": None, "text": "3", "yes": True, "list": [1, 2]})


def test_settings_that_are_right():
    assert settings.size("n") == 3 and settings.size("none", 4) == 4 == settings.size("null", 4)
    assert settings.number("f") == 0.5 and settings.number("n") == 3.0
    assert settings.get("null", 7) == 7
    settings.expect("text", "2", "3"), settings.expect("none", 1), settings.expect("null", 1)
    settings.expect_no_window("none", 9), settings.expect_no_window("null", 9)
    settings.expect_no_window("n", 3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: settings.size("none"), r"none a whole number >= 1, got None"),
        (lambda: settings.size("f"), r"f a whole number >= 1, got 0.5"),
        (lambda: settings.size("yes"), r"yes a whole number >= 1, got True"),
        (lambda: settings.size("list"), r"list a whole number >= 1, got \[1, 2\]"),
        (lambda: settings.size("none", 0), r"none a whole number >= 1, got 0"),
        (lambda: settings.number("text"), r"text a number, got '3'"),
        (lambda: settings.number("yes"), r"yes a number, got True"),
        (lambda: settings.expect("n", 1, 2), r"n 1 or 2, got 3 \(TinyLM has nothing else\)"),
        (lambda: settings.expect_no_window("n", 4), r"n of at least 4 positions, got 3"),
        (lambda: settings.expect_no_window("text", 2), r"text of at least 2 positions, got '3'"),
        (lambda: Settings("X", {"n": "a" * 99}).size("n"), r"got 'a{76}…$"),
    ],
)
def test_settings_that_are_wrong(ask, message):
    with pytest.raises(ValueError, match="X: expected .*" + message):
        ask()
