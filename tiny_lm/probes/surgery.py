"""Chapters 07 and 08: operations on a trained model, without any training after them.

Every operation returns another model; the one it is given stays as it is. Where weights change,
they are replaced in a twin that shares all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.model import TinyLM
from tiny_lm.probes.attribution import unembedding
from tiny_lm.probes.edits import (
    Edited,
    alone,
    batches,
    removed,
    rounded,
    streams,
    surprise,
    write_on,
)
from tiny_lm.variants import ORDERS

Operation = Callable[[TinyLM], TinyLM | Edited]

# Exact in real numbers


def fold_gains(model: TinyLM) -> TinyLM:
    """Every gain moved into the matrices that read it, and set to ones."""
    twin = _twin(model)
    with torch.no_grad():
        for norm, readers in _readers(twin):
            for linear in readers:
                linear.weight = nn.Parameter(linear.weight * norm.scale)
        _untie(twin, unembedding(model) * model.norm_final.scale)
        for norm in _norms(twin):
            norm.scale = nn.Parameter(torch.ones_like(norm.scale))
    return twin


def double_stream(model: TinyLM) -> TinyLM:
    """The stream, and all that is written to it, twice as large; eps four times."""
    twin = _twin(model)
    with torch.no_grad():
        _untie(twin, unembedding(model))
        for module in (twin.embedding, *_writers(twin)):
            module.weight = nn.Parameter(2 * module.weight)
    return _set_eps(twin, 4 * model.config.norm_eps)


def rotate_stream(model: TinyLM, seed: int = 0) -> TinyLM:
    """The whole stream turned by one random rotation, after the gains have been folded.

    Source: computational invariance of RMSNorm, Ashkboos et al. 2024 (SliceGPT), arXiv 2401.15024.
    """
    twin, width = fold_gains(model), model.config.d_model
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator).double())[0]
    turn = turn.to(model.embedding.weight)
    with torch.no_grad():
        twin.embedding.weight = nn.Parameter(twin.embedding.weight @ turn)
        twin.output.weight = nn.Parameter(twin.output.weight @ turn)
        for linear in _writers(twin):
            linear.weight = nn.Parameter(turn.T @ linear.weight)
        for _, readers in _readers(twin):
            for linear in readers:
                linear.weight = nn.Parameter(linear.weight @ turn)
    return twin


# Not exact


def layer_norm(model: TinyLM) -> TinyLM:
    """LayerNorm for every RMSNorm, with the same gains and eps: the mean is subtracted now."""

    def centred(norm: RMSNorm) -> LayerNorm:
        made = LayerNorm(norm.width, norm.eps).to(norm.scale)
        made.scale = norm.scale
        return made

    twin = _twin(model)
    for block in twin.blocks:
        block.norm1, block.norm2 = centred(block.norm1), centred(block.norm2)
    twin.norm_final = centred(twin.norm_final)
    twin.config = replace(model.config, norm="layer")
    return twin


def with_eps(model: TinyLM, eps: float) -> TinyLM:
    """Another eps in every norm."""
    return _set_eps(_twin(model), eps)


def no_final_norm(model: TinyLM) -> TinyLM:
    """The output matrix reads the stream as it is; the final gain goes too."""
    twin = _twin(model)
    twin.norm_final = nn.Identity()
    return twin


def post_norm(model: TinyLM) -> TinyLM:
    """The same weights in post-norm's order: norms on the direct path."""
    twin = _twin(model)
    twin.config = replace(model.config, order="post")
    for i, block in enumerate(model.blocks):
        twin.blocks[i] = other = ORDERS["post"](twin.config).to(block.norm1.scale)
        for name, child in block.named_children():
            setattr(other, name, child)
    return twin


def skip_block(model: TinyLM, block: int) -> Edited:
    """One block left out: the stream passes it by."""
    changes = {f"blocks.{block}.resid.{part}": removed for part in ("attn", "ffn")}
    return Edited(model, changes)


def cut_direct_path(model: TinyLM, block: int, part: str = "attn") -> Edited:
    """One residual addition left out: only what the branch wrote goes on. `part` attn or ffn."""
    return Edited(model, {f"blocks.{block}.resid.{part}": alone})


def bfloat16_stream(model: TinyLM) -> Edited:
    """The stream rounded to bfloat16 after every sum; branches compute as before."""
    return Edited(model, dict.fromkeys(streams(model), rounded))


# The bench


@dataclass(frozen=True)
class Operated:
    """A model after an operation, on the same texts and the same prompt."""

    name: str
    loss: float  # nats a token
    change: float  # against the loss before
    largest: float  # change of any logit
    written: list[int]


@torch.no_grad()
def operate(
    model: TinyLM,
    operations: Iterable[tuple[str, Operation]],
    rows: Sequence[Sequence[int]],
    prompt: Sequence[int],
    *,
    new: int = 40,
    stop_id: int | None = None,
) -> list[Operated]:
    """Do one operation after the other, each on the model as it was."""
    texts, count = batches(rows), sum(len(row) - 1 for row in rows)
    before = [model(ids[:, :-1]) for ids in texts]
    own = sum(surprise(logits, ids) for logits, ids in zip(before, texts, strict=True)) / count
    results = []
    for name, operation in operations:
        patient = operation(model)
        total = largest = 0.0
        for ids, old in zip(texts, before, strict=True):
            logits = patient(ids[:, :-1])
            total += surprise(logits, ids)
            largest = max(largest, float((logits - old).abs().max()))
        written = write_on(patient, prompt, new, stop_id)
        results.append(Operated(name, total / count, total / count - own, largest, written))
    return results


def _twin(model: TinyLM) -> TinyLM:
    """A copy whose modules are its own and whose weights are the model's, until replaced."""
    return deepcopy(model, {id(weight): weight for weight in model.parameters()})


def _norms(model: TinyLM) -> list[nn.Module]:
    inside = [norm for block in model.blocks for norm in (block.norm1, block.norm2)]
    return [*inside, model.norm_final]


def _readers(model: TinyLM) -> list[tuple[nn.Module, list[nn.Linear]]]:
    """Each norm inside a block with the matrices that read it."""
    pairs = []
    for block in model.blocks:
        a, f = block.attention, block.ffn
        pairs.append((block.norm1, [a.q_proj, a.k_proj, a.v_proj]))
        pairs.append((block.norm2, [f.gate_proj, f.up_proj]))
    return pairs


def _writers(model: TinyLM) -> list[nn.Linear]:
    return [w for block in model.blocks for w in (block.attention.out_proj, block.ffn.down_proj)]


def _untie(twin: TinyLM, matrix: Tensor) -> None:
    """Give a twin an output matrix of its own."""
    twin.output = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, device="meta")
    twin.output.weight = nn.Parameter(matrix.clone())
    twin.config = replace(twin.config, tied=False)


def _set_eps(twin: TinyLM, eps: float) -> TinyLM:
    for norm in _norms(twin):
        norm.eps = eps
    twin.config = replace(twin.config, norm_eps=eps)
    return twin
