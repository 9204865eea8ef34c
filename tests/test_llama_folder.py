"""llama_folder.py: what a Hugging Face folder says is what TinyLM computes, or it is refused."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_writers import (
    ABSENT,
    folder_settings,
    halves,
    in_folder,
    logits_with_halves,
    small_model,
    some_tokens,
    write_folder,
    write_gguf,
)
from safetensors.torch import save_file
from torch.testing import assert_close

from tiny_lm import pretrained
from tiny_lm.formats.llama_folder import neighbouring_pairs, open_folder
from tiny_lm.rope import rope_angles
from tiny_lm.tokenizer import BytePairTokenizer

VARIANTS = {
    "tied": {},
    "untied": {"tied": False},
    "no groups": {"n_kv_heads": 4},
    "one group": {"n_kv_heads": 1, "tied": False},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_gives_the_logits_of_its_weights(tmp_path, changes, shards):
    model = small_model(**changes)
    path = write_folder(tmp_path / "model", model, shards=shards)
    loaded, tokenizer = pretrained.load(path, dtype=torch.float64)
    assert (loaded.config, tokenizer, loaded.training) == (model.config, None, False)
    with torch.no_grad():
        got = loaded(some_tokens())
    expected = logits_with_halves(in_folder(model), model.config, some_tokens())
    assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_both_layouts_of_the_same_weights_give_the_same_model(tmp_path, changes):
    model = small_model(**changes)
    one, _ = pretrained.load(write_folder(tmp_path / "model", model))
    other, _ = pretrained.load(write_gguf(tmp_path / "a.gguf", model))
    assert one.config == other.config
    for name, weight in model.state_dict().items():
        assert torch.equal(one.state_dict()[name], weight), name
        assert torch.equal(other.state_dict()[name], weight), name


@settings(deadline=None, max_examples=30, derandomize=True)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 40), st.integers(1, 3),
    st.booleans(), st.sampled_from([1e-6, 1e-5, 0.1]), st.sampled_from([100.0, 10_000.0, 5e5]),
)  # fmt: skip
def test_every_shape_comes_back_from_both_layouts(
    tmp_path_factory, kv_heads, shared, half, hidden, layers, tied, eps, theta
):
    """Any number of heads of any even width: config and weights, to the last bit."""
    heads, folder = kv_heads * shared, tmp_path_factory.mktemp("model")
    model = small_model(
        d_model=heads * 2 * half, n_heads=heads, n_kv_heads=kv_heads, d_ff=hidden, n_layers=layers,
        tied=tied, norm_eps=eps, rope_theta=theta, vocab_size=hidden + 1,
    )  # fmt: skip
    for path in (write_folder(folder / "model", model), write_gguf(folder / "a.gguf", model)):
        loaded, _ = pretrained.load(path)
        assert loaded.config == model.config
        for name, weight in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], weight), name


@pytest.mark.parametrize("which", ["q_proj", "k_proj"])
def test_the_order_of_rows_can_be_seen_in_the_logits(tmp_path, which):
    """The tests above have teeth: one matrix in the other layout moves logits by whole units."""
    model = small_model()

    def edit(tensors):
        name = f"model.layers.0.self_attn.{which}.weight"
        return tensors | {name: getattr(model.blocks[0].attention, which).weight.detach()}

    wrong, _ = pretrained.load(write_folder(tmp_path / "model", model, edit=edit))
    with torch.no_grad():
        difference = (wrong(some_tokens()) - model(some_tokens())).abs()
    assert difference[:, 0].max() < 1e-5  # the first position cannot see it
    assert difference[:, 1:].max() > 0.5


@pytest.mark.parametrize("stored", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_weights_are_float32_unless_asked_otherwise(tmp_path, stored):
    model = small_model().to(stored)
    path = write_folder(tmp_path / "model", model)
    for dtype, options in ((torch.float32, {}), (torch.bfloat16, {"dtype": torch.bfloat16})):
        loaded, _ = pretrained.load(path, **options)
        for name, weight in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], weight.to(dtype))


def test_neighbouring_pairs_undoes_halves():
    rows = torch.arange(24.0)[:, None]
    assert neighbouring_pairs(rows[:8], 4)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert torch.equal(neighbouring_pairs(halves(rows, 8), 8), rows)
    with pytest.raises(
        ValueError, match=r"neighbouring_pairs: expected rows in heads of 5, got \["
    ):
        neighbouring_pairs(rows, 5)


def test_a_loaded_model_does_not_depend_on_its_file(tmp_path):
    path = write_folder(tmp_path / "model", small_model())
    loaded, _ = pretrained.load(path)
    file = path / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:3000] + bytes(len(data) - 3000))
    assert torch.equal(loaded.embedding.weight, small_model().embedding.weight)


def test_files_without_an_index_are_all_read(tmp_path):
    path = write_folder(tmp_path / "model", small_model(), shards=2)
    (path / "model.safetensors.index.json").unlink()
    assert open_folder(path).config == small_model().config


def test_files_outside_of_the_index_are_not_read(tmp_path):
    path = write_folder(tmp_path / "model", small_model(), shards=2)
    save_file({"model.norm.weight": torch.zeros(64)}, path / "consolidated.safetensors")
    assert open_folder(path).config == small_model().config


# Settings


@pytest.mark.parametrize(
    "change",
    [
        {"head_dim": 16},
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_theta": ABSENT, "rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}},
        {"hidden_act": ABSENT, "attention_bias": None, "mlp_bias": ABSENT},
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": 32},
        {"layer_types": ["full_attention", "full_attention"]},
        {"partial_rotary_factor": 1.0},
    ],
    ids=str,
)
def test_settings_that_change_nothing_are_accepted(tmp_path, change):
    path = write_folder(tmp_path / "model", small_model(), change)
    assert open_folder(path).config == small_model().config


def test_defaults_are_those_of_the_library(tmp_path):
    model = small_model(n_kv_heads=4, norm_eps=1e-6, rope_theta=10_000.0, tied=False)
    absent = ["num_key_value_heads", "rms_norm_eps", "rope_theta", "tie_word_embeddings"]
    path = write_folder(tmp_path / "model", model, dict.fromkeys(absent, ABSENT))
    assert open_folder(path).config == model.config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, r"model_type llama or mistral in config.json, got 'gpt2'"),
        ({"model_type": ABSENT}, r"model_type llama or mistral in config.json, got None"),
        (
            {"hidden_act": "gelu"},
            r"hidden_act silu or swish, got 'gelu' \(TinyLM has nothing else\)",
        ),
        ({"attention_bias": True}, r"attention_bias False, got True"),
        ({"mlp_bias": True}, r"mlp_bias False, got True"),
        ({"head_dim": 32}, r"head_dim 16, got 32"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor 1, got 0.5"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            r"rope_scaling: expected type default",
        ),
        (
            {"rope_scaling": {"rope_type": "llama3"}},
            r"rope_scaling: expected rope_type default, got 'l",
        ),
        ({"rope_scaling": 2}, r"rope_scaling as an object, got 2"),
        (
            {"rope_parameters": {"rope_type": "yarn"}},
            r"rope_parameters: expected rope_type default",
        ),
        (
            {"rope_parameters": {"rope_theta": "x"}},
            r"rope_parameters: expected rope_theta a number",
        ),
        ({"sliding_window": 16}, r"sliding_window of at least 32 positions, got 16"),
        (
            {"model_type": "mistral"},
            r"sliding_window, a number or null, got none \(for mistral none",
        ),
        (
            {"model_type": "mistral", "sliding_window": None, "num_key_value_heads": ABSENT},
            r"num_key_value_heads a whole number >= 1, got None",
        ),
        (
            {"layer_types": ["sliding_attention"]},
            r"layer_types of full_attention, got \['sliding_att",
        ),
        ({"layer_types": 3}, r"layer_types of full_attention, got 3"),
        (
            {"quantization_config": {"bits": 4}},
            r"weights that are not quantised, got a quantization_c",
        ),
        ({"hidden_size": "64"}, r"hidden_size a whole number >= 1, got '64'"),
        (
            {"max_position_embeddings": ABSENT},
            r"max_position_embeddings a whole number >= 1, got None",
        ),
        ({"rms_norm_eps": True}, r"rms_norm_eps a number, got True"),
        ({"rope_theta": 10**400}, r"rope_theta a number, got 1000"),
        ({"rms_norm_eps": float("inf")}, r"rms_norm_eps a number, got inf"),
        ({"num_hidden_layers": 10**9}, r"tensors for 1000000000 layers, got 20 tensors"),
        (
            {"num_hidden_layers": 1},
            r"got 9 left over: model.layers.1.input_layernorm.weight, model.l",
        ),
        (
            {"tie_word_embeddings": False},
            r"the 21 tensors of its config, got 1 missing: lm_head.weight",
        ),
    ],
    ids=str,
)
def test_what_tiny_lm_does_not_have_is_refused(tmp_path, change, message):
    path = write_folder(tmp_path / "model", small_model(), change)
    with pytest.raises(ValueError, match="Hugging Face folder: .*" + message):
        open_folder(path)


words = st.text(max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    key=st.sampled_from([*folder_settings(small_model()), "head_dim", "layer_types"]),
    value=json_values,
)
def test_any_value_of_any_setting_is_refused_or_harmless(tmp_path_factory, key, value):
    path = write_folder(tmp_path_factory.mktemp("any") / "model", small_model(), {key: value})
    try:
        pretrained.load(path)
    except ValueError as error:
        assert ": expected " in str(error)


# Tensors


def without(name):
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def with_one(name, value):
    return lambda tensors: tensors | {name: value}


k1, q0 = (f"model.layers.{i}.self_attn.{x}_proj" for i, x in ((1, "k"), (0, "q")))
frequencies = rope_angles(torch.ones(1), 16, 100_000.0)[0].float()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without("model.norm.weight"), r"got 1 missing: model.norm.weight"),
        (with_one(q0 + ".bias", torch.ones(64)), rf"got 1 left over: {q0}.bias"),
        (
            with_one(k1 + ".weight", torch.ones(64, 64)),
            r"blocks.1.attention.k_proj.weight \[32, 64\], got",
        ),
        (
            with_one(k1 + ".weight", torch.ones(32, 64).char()),
            rf"{k1}.weight of F64, .*, got I8 \(quantised weights are read from GGUF\)",
        ),
        (
            with_one("lm_head.weight", torch.ones(50, 64)),
            r"lm_head.weight equal to the embedding, as it is tied, got another one",
        ),
        (
            with_one("model.layers.0.self_attn.rotary_emb.inv_freq", 2 * frequencies),
            r"rotary_emb.inv_freq of theta 100000, got other frequencies",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, edit, message):
    path = write_folder(tmp_path / "model", small_model(), edit=edit)
    with pytest.raises(ValueError, match=message):
        pretrained.load(path)


def test_what_is_stored_twice_is_compared_and_left_out(tmp_path):
    model = small_model()

    def edit(tensors):
        copies = {
            f"model.layers.{i}.self_attn.rotary_emb.inv_freq": frequencies.clone() for i in (0, 1)
        }
        return tensors | copies | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}

    loaded, _ = pretrained.load(write_folder(tmp_path / "model", model, edit=edit))
    assert loaded.config == model.config


# Files


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"Hugging Face folder: expected a readable config.json, got"
    ):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "a readable config.json"), ("[]", "an object in config.json, got list")],
)
def test_a_broken_config_is_refused(tmp_path, content, message):
    path = write_folder(tmp_path / "model", small_model())
    (path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="Hugging Face folder: expected " + message):
        open_folder(path)


def test_pickled_weights_are_not_read(tmp_path):
    path = write_folder(tmp_path / "model", small_model())
    (path / "model.safetensors").unlink()
    torch.save({}, path / "pytorch_model.bin")
    message = r"expected \*.safetensors in .*, got none \(pickled weights are not read\)"
    with pytest.raises(ValueError, match=message):
        open_folder(path)


def test_a_shard_cut_short_is_refused(tmp_path):
    path = write_folder(tmp_path / "model", small_model(), shards=2)
    shard = path / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"expected a whole model-00002-of-00002.safetensors, got"):
        open_folder(path)
    shard.unlink()
    with pytest.raises(ValueError, match=r"expected a whole model-00002-of-00002.safetensors, got"):
        open_folder(path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, r"a weight_map in model.safetensors.index.json, got NoneType"),
        (
            {"weight_map": {"a": "../a.safetensors"}},
            r"files of the folder itself in the index, got '..",
        ),
    ],
)
def test_a_broken_index_is_refused(tmp_path, index, message):
    path = write_folder(tmp_path / "model", small_model(), shards=2)
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=message):
        open_folder(path)


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    path = write_folder(tmp_path / "model", small_model(), shards=2)
    (path / "model.safetensors.index.json").unlink()
    save_file({"model.norm.weight": torch.ones(64)}, path / "z.safetensors")
    with pytest.raises(
        ValueError, match=r"every tensor once, got model.norm.weight again in z.safet"
    ):
        open_folder(path)


# Tokenizer


byte_pairs = BytePairTokenizer.train("the cat sat on the mat", 262, special=["<end>", "<user>"])


def write_tokenizer(path, **config):
    text = json.dumps(json.loads(byte_pairs.to_json())["tokenizer"])
    (path / "tokenizer.json").write_text(text, encoding="utf-8")
    if config:
        (path / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("settings", "config", "end_id"),
    [
        ({}, {}, None),
        ({"eos_token_id": 1}, {}, 1),
        ({"eos_token_id": [1, 0]}, {}, 1),
        ({"eos_token_id": 1}, {"eos_token": "<end>"}, 0),
        ({"eos_token_id": 1}, {"eos_token": {"content": "<end>"}}, 0),
        ({"eos_token_id": 1}, {"eos_token": None}, 1),
    ],
)
def test_the_tokenizer_and_its_end(tmp_path, settings, config, end_id):
    path = write_folder(tmp_path / "model", small_model(vocab_size=262), settings)
    write_tokenizer(path, **config)
    _, tokenizer = pretrained.load(path)
    assert tokenizer.encode("the cat") == byte_pairs.encode("the cat")
    assert tokenizer.end_id == end_id


def test_an_end_token_of_another_kind_is_refused(tmp_path):
    path = write_folder(tmp_path / "model", small_model(vocab_size=262), {"eos_token_id": [[1]]})
    write_tokenizer(path)
    with pytest.raises(ValueError, match=r"expected an end token, as text or id, got \[1\]"):
        pretrained.load(path)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path):
    """A smaller one is usual: many embeddings are padded."""
    path = write_folder(tmp_path / "model", small_model())
    write_tokenizer(path)
    message = r"pretrained.load: expected a tokenizer of at most 50 tokens, got 262"
    with pytest.raises(ValueError, match=message):
        pretrained.load(path)
