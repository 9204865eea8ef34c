"""Save and load a model: one .safetensors file, with config and tokenizer in its header.

Nothing in the file can run code, unlike a pickle. Source: the safetensors format, a JSON header
followed by the bytes of the tensors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tiny_lm.config import ModelConfig
from tiny_lm.extras import need
from tiny_lm.files import replacing
from tiny_lm.model import TinyLM
from tiny_lm.shapes import fail
from tiny_lm.tokenizer import BytePairTokenizer, CharTokenizer, Tokenizer, from_json

Shapes = Mapping[str, tuple[int, ...]]


def save(
    path: str | Path,
    model: TinyLM,
    tokenizer: Tokenizer | None = None,
    *,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Write model and tokenizer to one file, and return its path: all of it or nothing.

    A file that was there is replaced only when the new one is complete. `notes` go into its header
    too. Raises ValueError when the model's parameters are not those of its config, or not floats,
    and OSError as the disk does.
    """
    path = Path(path).resolve()  # a link is followed, not replaced
    if path.exists() and not path.is_file():
        fail("checkpoint.save", "the path of a file", path, "there is something else")
    state = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    for name, tensor in state.items():
        if not tensor.is_floating_point():
            hint = "save a model before it is shrunk"
            fail("checkpoint.save", f"floating-point numbers in {name}", tensor.dtype, hint)
    _expect_shapes("checkpoint.save", model.config, _shapes(state))
    header = {**(notes or {}), "format": "tiny_lm", "config": json.dumps(asdict(model.config))}
    if tokenizer is not None:
        header["tokenizer"] = tokenizer.to_json()
    write(path, state, header)
    return path


def write(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write a .safetensors file, all of it or nothing. Raises OSError as the disk does."""
    safetensors, save_file = need("safetensors"), need("safetensors.torch").save_file
    try:
        with replacing(path) as unfinished:
            usual = unfinished.stat().st_mode  # the library's files are for their owner alone
            save_file(dict(tensors), unfinished, metadata=dict(header))
            unfinished.chmod(usual)
    except safetensors.SafetensorError as error:
        raise OSError(f"checkpoint.save: could not write {path}: {error}") from error


def load(
    path: str | Path, *, mapped: bool = False
) -> tuple[TinyLM, CharTokenizer | BytePairTokenizer | None]:
    """Read back what save wrote: `path -> (model in eval mode, tokenizer or None)`.

    `mapped` weights stay in the file until they are used, and are copied where they are changed;
    the file must not be written into while the model lives.

    Raises ValueError for a file that is missing, cut short, written by another program, or whose
    tensors are not those of its config.
    """
    who = "checkpoint.load"
    safetensors = need("safetensors")
    try:
        file = safetensors.safe_open(path, framework="pt")
    except (OSError, safetensors.SafetensorError) as error:
        fail(who, "a .safetensors file", path, str(error))
    with file:
        header = file.metadata() or {}
        if header.get("format") != "tiny_lm" or "config" not in header:
            fail(who, "a checkpoint of tiny_lm", path, "its header has no config of a TinyLM")
        config = _config(who, header["config"])
        tokenizer = from_json(header["tokenizer"]) if "tokenizer" in header else None
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        # A copy, so that the file can be replaced while the model lives.
        read = file.get_tensor if mapped else lambda name: file.get_tensor(name).clone()
        model = assemble(who, config, shapes, read)
    return model, tokenizer


def assemble(
    who: str, config: ModelConfig, shapes: Shapes, read: Callable[[str], Tensor]
) -> TinyLM:
    """Build a model, in eval mode, around tensors that are read one by one.

    `shapes` are those of the tensors at hand, by the names of TinyLM; all of them are compared
    before the first is read. Raises ValueError, in the name of `who`, for tensors that are
    missing, left over, of another shape or not floats.
    """
    model = _expect_shapes(who, config, shapes)
    state = {}
    for name in shapes:
        state[name] = read(name)
        if not state[name].is_floating_point():
            fail(who, f"floating-point numbers in {name}", state[name].dtype)
    model.load_state_dict(state, assign=True)
    return model.eval()


def expect_names(who: str, expected: Iterable[str], found: Iterable[str]) -> None:
    """Raise ValueError, naming the first few, unless both hold the same names of tensors."""
    expected, found = set(expected), set(found)
    differences = []
    for what, names in (
        ("missing", sorted(expected - found)),
        ("left over", sorted(found - expected)),
    ):
        if names:
            first = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            differences.append(f"{len(names)} {what}: {first}")
    if differences:
        fail(who, f"the {len(expected)} tensors of its config", "; ".join(differences))


def _config(who: str, text: str) -> ModelConfig:
    try:
        return ModelConfig(**json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        fail(who, "the config of a TinyLM", text[:200], str(error))


def _expect_shapes(who: str, config: ModelConfig, shapes: Shapes) -> TinyLM:
    """Compare shapes with those the config asks for; returns the model without its numbers."""
    # A config that lies must not make a giant: every size below is first seen in a tensor.
    embedding, wanted = shapes.get("embedding.weight"), (config.vocab_size, config.d_model)
    if embedding != wanted:
        fail(who, f"embedding.weight {list(wanted)}", list(embedding or ()) or "none")
    if config.n_layers > len(shapes):
        fail(who, f"tensors for {config.n_layers} layers", f"{len(shapes)} tensors")
    gate = shapes.get("blocks.0.ffn.gate_proj.weight")
    if gate != (config.d_ff, config.d_model):
        expected = f"blocks.0.ffn.gate_proj.weight {[config.d_ff, config.d_model]}"
        fail(who, expected, list(gate or ()) or "none")
    with torch.device("meta"), _Unfilled():
        model = TinyLM(config)
    expected = _shapes(model.state_dict())
    expect_names(who, expected, shapes)
    for name, shape in expected.items():
        if shapes[name] != shape:
            fail(who, f"{name} {list(shape)}", list(shapes[name]))
    return model


class _Unfilled(TorchFunctionMode):
    """Inside, modules do not fill their parameters: on "meta" that would take a second."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
