"""cli.py: what the terminal shows, and that bad input is one line and status 2."""

import runpy
import signal
import subprocess
import sys
import types

import pytest
import torch
from llama_writers import small_model, write_folder

from tiny_lm import checkpoint, pretrained
from tiny_lm import generate as generating
from tiny_lm.cli import main
from tiny_lm.fast import speed_up
from tiny_lm.fast.eight_bits import shrink
from tiny_lm.generate import generate
from tiny_lm.tokenizer import CharTokenizer

TOKENIZER = CharTokenizer("".join(map(chr, range(65, 65 + 50))))  # A … r


@pytest.fixture
def model(tmp_path):
    return str(checkpoint.save(tmp_path / "model.safetensors", small_model(), TOKENIZER))


@pytest.fixture
def bare(tmp_path):
    return str(checkpoint.save(tmp_path / "bare.safetensors", small_model()))


def expected_text(prompt, new, **options):
    ids = torch.tensor([TOKENIZER.encode(prompt)])
    return TOKENIZER.decode(generate(small_model(), ids, new, **options)[0].tolist())


def test_generate_is_greedy_unless_told(model, capsys):
    assert main(["generate", "--model", model, "ABC", "--new", "9"]) == 0
    assert capsys.readouterr() == (expected_text("ABC", 9, temperature=0) + "\n", "")


def test_generate_hands_on_every_option(model, capsys):
    options = [
        "--temperature",
        "0.9",
        "--top-k",
        "20",
        "--top-p",
        "0.8",
        "--seed",
        "7",
        "--new",
        "20",
    ]
    assert main(["generate", "--model", model, "ABC", *options]) == 0
    expected = expected_text("ABC", 20, temperature=0.9, top_k=20, top_p=0.8, seed=7)
    assert capsys.readouterr().out == expected + "\n"


@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_generate_with_rounded_weights(model, weights, capsys, monkeypatch):
    rounded = shrink(small_model()) if weights == "int8" else speed_up(small_model().bfloat16())
    written = generate(rounded, torch.tensor([TOKENIZER.encode("ABC")]), 9, temperature=0)
    used = []
    start = generating.stream
    monkeypatch.setattr(
        generating, "stream", lambda m, *a, **k: used.append(m) or start(m, *a, **k)
    )
    assert main(["generate", "--model", model, "ABC", "--new", "9", "--weights", weights]) == 0
    assert capsys.readouterr().out == TOKENIZER.decode(written[0].tolist()) + "\n"
    assert used[0].embedding.weight.dtype == rounded.embedding.weight.dtype
    with pytest.raises(SystemExit):
        main(["generate", "--model", model, "ABC", "--weights", "int4"])


def test_generate_prints_tokens_as_they_come(model, monkeypatch):
    printed = []
    write = sys.stdout.write
    monkeypatch.setattr(sys.stdout, "write", lambda text: printed.append(text) or write(text))
    assert main(["generate", "--model", model, "ABC", "--new", "5"]) == 0
    assert len([text for text in printed if text.strip()]) == 6  # the prompt and five tokens


def test_generate_stops_at_the_end_token(model, monkeypatch, capsys):
    text = expected_text("ABC", 9, temperature=0)
    end = text[5]
    monkeypatch.setattr(CharTokenizer, "end_id", TOKENIZER.encode(end)[0])
    assert main(["generate", "--model", model, "ABC", "--new", "9"]) == 0
    assert capsys.readouterr().out == "ABC" + text[3:].partition(end)[0] + "\n"


def test_inspect_reports_a_checkpoint(model, bare, capsys):
    assert main(["inspect", model, "--prompt", "ABC"]) == 0
    assert "the stream for 3 tokens: 'A' | 'B' | 'C'" in capsys.readouterr().out
    assert main(["inspect", bare]) == 0
    assert "the stream for 8 tokens: '0' | '1'" in capsys.readouterr().out


def test_inspect_writes_a_page_where_it_is_told_to(model, tmp_path, capsys):
    assert main(["inspect", model, "--prompt", "ABC", "--out", str(tmp_path / "out")]) == 0
    page = tmp_path / "out" / "report.html"
    out, err = capsys.readouterr()
    assert out.endswith(f"\nwritten: {page}\n") and "findings" in out and err == ""
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["inspect", model, "--prompt", "ABC"]) == 0
    assert out.startswith(capsys.readouterr().out)  # the same, but for the last line


def test_inspect_that_fails_writes_no_page(model, tmp_path, capsys):
    assert main(["inspect", model, "--prompt", "é", "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    assert main(["inspect", model, "--out", model]) == 2
    assert "inspect: expected a folder, got" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["generate", "--model"], ["inspect", "--prompt"]])
def test_bytes_that_are_no_text_are_one_line_and_status_2(verb, tmp_path, capsys):
    """As a shell hands them over: $'\\xff' becomes a lone surrogate."""
    from tiny_lm.tokenizer import BytePairTokenizer

    tokenizer = BytePairTokenizer.train("some text", 256)
    path = checkpoint.save(tmp_path / "m.safetensors", small_model(vocab_size=256), tokenizer)
    order = [str(path), "ab\udcff"] if verb[0] == "generate" else ["ab\udcff", str(path)]
    assert main([*verb, *order]) == 2
    assert capsys.readouterr() == (
        "",
        "tiny_lm: BytePairTokenizer: expected text that UTF-8 can write, got 'ab\\udcff'\n",
    )


def test_inspect_reports_a_folder(tmp_path, capsys):
    write_folder(tmp_path / "folder", small_model())
    assert main(["inspect", str(tmp_path / "folder")]) == 0
    assert "n_kv_heads   2" in capsys.readouterr().out


def test_fetch_prints_where_the_file_is(monkeypatch, capsys, tmp_path):
    asked = []
    monkeypatch.setattr(pretrained, "fetch", lambda name: asked.append(name) or tmp_path)
    assert main(["fetch"]) == 0 and main(["fetch", "another"]) == 0
    assert capsys.readouterr() == (f"{tmp_path}\n" * 2, "")
    assert asked == ["smollm2-135m", "another"]


def test_lesson_runs_the_lesson(monkeypatch):
    """Whatever the lesson returns is the exit status."""
    lessons, l15 = types.ModuleType("tiny_lm.lessons"), types.ModuleType("tiny_lm.lessons.l15")
    l15.main = lambda: 7
    lessons.l15 = l15
    monkeypatch.setitem(sys.modules, "tiny_lm.lessons", lessons)
    monkeypatch.setitem(sys.modules, "tiny_lm.lessons.l15", l15)
    assert main(["lesson"]) == 7


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--model", "MODEL", ""], "generate: expected at least one token, got [1, 0]"),
        (
            ["generate", "--model", "MODEL", "é"],
            "CharTokenizer: expected one of the 50 known charact",
        ),
        (
            ["generate", "--model", "MODEL", "A", "--temperature", "-1", "--new", "1"],
            "expected temperature >= 0",
        ),
        (
            ["generate", "--model", "MODEL", "A", "--top-k", "99", "--new", "1"],
            "expected top_k 1 … 50, got 99",
        ),
        (
            ["generate", "--model", "MODEL", "A", "--top-p", "2", "--new", "1"],
            "expected top_p above 0 and at most 1",
        ),
        (
            ["generate", "--model", "MODEL", "A", "--new", "1", "--seed", "9" * 23],
            "generate: expected a seed from -2^63 to 2^64 - 1, got 9999",
        ),
        (["generate", "--model", "MODEL", "A", "--new", "99"], "expected at most 32 positions"),
        (
            ["generate", "--model", "BARE", "A"],
            "generate: expected a tokenizer beside BARE, got none (a prompt needs one)",
        ),
        (["generate", "--model", "no-such", "A"], "a .gguf file or a folder, got 'no-such'"),
        (
            ["generate", "--model", "no.safetensors", "A"],
            "checkpoint.load: expected a .safetensors f",
        ),
        (["inspect", "no-such"], "a .gguf file or a folder, got 'no-such' (no such file)"),
        (
            ["inspect", "BARE", "--prompt", "A"],
            "inspect: expected a tokenizer beside BARE, got none (leave out --prompt)",
        ),
        (["inspect", "MODEL", "--prompt", "A" * 33], "TinyLM: expected at most 32 positions"),
        (["inspect", "MODEL", "--prompt", ""], "TinyLM: expected at least one token"),
        (["fetch", "gpt-5"], "pretrained: expected one of smollm2-135m, got 'gpt-5'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(model, bare, capsys, arguments, message):
    paths = {"MODEL": model, "BARE": bare}
    assert main([paths.get(argument, argument) for argument in arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("tiny_lm: ") and output.err.count("\n") == 1
    assert message.replace("BARE", str(bare)) in output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: VERB"),
        (["sing"], "invalid choice: 'sing'"),
        (["generate", "A"], "the following arguments are required: --model"),
        (
            ["generate", "--model", "x", "A", "--new", "many"],
            "argument --new: invalid int value: 'many'",
        ),
        (["inspect"], "the following arguments are required: NAME|PATH"),
    ],
)
def test_a_bad_command_line_is_one_line_and_status_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    output = capsys.readouterr()
    assert (caught.value.code, output.out, output.err.count("\n")) == (2, "", 1)
    assert message in output.err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (OSError("could not download"), 1, "tiny_lm: could not download\n"),
        (ImportError("no gguf"), 1, "tiny_lm: no gguf\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_is_not_the_user_s_fault_has_another_status(monkeypatch, capsys, error, status, line):
    def fails(name):
        raise error

    monkeypatch.setattr(pretrained, "fetch", fails)
    assert main(["fetch"]) == status
    assert capsys.readouterr() == ("", line)


# As a process


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom tiny_lm.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print({'torch', 'numpy', 'gguf', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("set()\n")
    for verb in ("lesson", "fetch", "generate", "inspect"):
        assert f"    {verb} " in done.stdout


def test_the_module_runs_and_hands_on_the_status(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tiny_lm", "inspect", "no-such"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # SIGTERM stays as pytest wants it
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tiny_lm", run_name="__main__")
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("tiny_lm: pretrained.load: expected stories, smollm2-135m")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end differently there")
def test_a_reader_that_stops_is_no_error(model):
    """As in `python -m tiny_lm generate … | head -c 1`."""
    command = [sys.executable, "-m", "tiny_lm", "generate", "--model", model, "A", "--new", "25"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_inspect_without_a_prompt_takes_some_ids_when_ours_cannot_be_written(model, capsys):
    assert main(["inspect", model]) == 0  # the tokenizer has no blank
    out, err = capsys.readouterr()
    assert "the stream for 8 tokens: 'A' | 'B' | 'C'" in out and err == ""
    assert main(["inspect", model, "--prompt", "a blank"]) == 2
