"""Chapter 04: exercises on the pre-norm block; those on its parts are in attention.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tiny_lm.exercises import attention, parts
from tiny_lm.exercises.compare import Named
from tiny_lm.exercises.core import Exercise


def _rms_norm(x: Tensor) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


def _layer_norm(x: Tensor) -> Tensor:
    return _rms_norm(x - x.mean(dim=-1, keepdim=True))


# --- the block, from its four parts


def _block(x, norm1, attention, norm2, ffn):
    h = x + attention(norm1(x))
    return h + ffn(norm2(h))


def _from_the_copy(x, norm1, attention, norm2, ffn):
    x = norm1(x)
    h = norm2(x + attention(x))
    return h + ffn(h)


def _post_norm(x, norm1, attention, norm2, ffn):
    h = norm1(x + attention(x))
    return norm2(h + ffn(h))


def _no_direct_path(x, norm1, attention, norm2, ffn):
    return ffn(norm2(attention(norm1(x))))


_GAINS = torch.tensor([2.0, 0.5])
_NORM1 = Named("[2, 0.5] · RMSNorm", lambda x: _GAINS * _rms_norm(x))
_NORM2 = Named("0.5 · RMSNorm", lambda x: 0.5 * _rms_norm(x))
_NOTHING = Named("a branch of zeros", torch.zeros_like)
_WRITE = Named("writes [1, 0]", lambda x: torch.tensor([1.0, 0.0]).expand_as(x))
_DOUBLE, _TURN = Named("doubles", lambda x: 2 * x), Named("reverses", lambda x: x.flip(-1))
_X = torch.tensor([3.0, 4.0])


# --- a test for leaks


def _leaks(f: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    before, noise = f(x), torch.Generator().manual_seed(1)
    for t in range(1, len(x)):
        changed = x.clone()
        changed[t] = torch.randn(x.shape[1], generator=noise)
        if not torch.allclose(f(changed)[:t], before[:t], rtol=0, atol=1e-5):
            return True
    return False


def _leaks_by(change: Callable[[Tensor], Tensor], positions: Callable[[int], range]):
    """A test that changes `positions` by `change` and compares the outputs before them."""

    def leaks(f, x):
        before = f(x)
        for t in positions(len(x)):
            changed = x.clone()
            changed[t] = change(x[t])
            if not torch.allclose(f(changed)[:t], before[:t], rtol=0, atol=1e-5):
                return True
        return False

    return leaks


def _anything_moves(f, x):
    changed = x.clone()
    changed[-1] += torch.randn(x.shape[1], generator=torch.Generator().manual_seed(1))
    return not torch.allclose(f(changed), f(x))


def _first_sees_second(what: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cat([x[:1] + what(x[1:2]), x[1:]])


def _sees_the_next(at: int) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cat([x[:at], x[at : at + 1] + x[at + 1 : at + 2], x[at + 1 :]])


def _running_mean(x: Tensor) -> Tensor:
    return x.cumsum(dim=0) / torch.arange(1, len(x) + 1)[:, None]


_STREAM = torch.tensor(
    [[1.0, 2.0, -1.0, 0.5], [0.3, -2.0, 1.5, 1.0], [2.0, 0.7, 0.1, -1.0], [-1.2, 0.4, 3.0, 0.6]]
)
_FUNCTIONS = (
    Named("a norm for each position", _rms_norm),
    Named("the mean so far", _running_mean),
    Named("the mean of all positions", lambda x: x.mean(dim=0).expand_as(x)),
    Named("position 1 sees position 2", _first_sees_second(lambda x: x)),
    Named("position 1 sees RMSNorm of position 2", _first_sees_second(_rms_norm)),
    Named("position 1 sees LayerNorm of position 2", _first_sees_second(_layer_norm)),
    Named("position 2 sees position 3", _sees_the_next(1)),
    Named("position 3 sees the last", _sees_the_next(2)),
    Named("one norm over (T, D)", lambda x: x / (x.square().mean() + 1e-5).sqrt()),
)


_BLOCK = 4 * 64**2 + 3 * 64 * 176 + 2 * 64
_ALL = 65 * 64 + 2 * _BLOCK + 64

EXERCISES = (
    *attention.EXERCISES,
    *parts.EXERCISES,
    Exercise(
        name="block_forward",
        chapter=4,
        title="Assemble the block",
        difficulty=2,
        minutes=6,
        reference=_block,
        cases=[
            (_X, _NORM1, _NOTHING, _NORM1, _NOTHING),
            (_X, _NORM1, _WRITE, _NORM1, _DOUBLE),
            (_X, _NORM1, _TURN, _NORM2, _DOUBLE),
        ],
        wrong={
            "The sums start from the normalised copy. The direct path must keep x as it came.": (
                _from_the_copy
            ),
            "The second norm reads x. It must read h, with what attention has written.": (
                lambda x, norm1, attention, norm2, ffn: x + attention(norm1(x)) + ffn(norm2(x))
            ),
            "The second sum starts from x again, so what attention wrote is lost.": (
                lambda x, norm1, attention, norm2, ffn: x + ffn(norm2(x + attention(norm1(x))))
            ),
            "This is post-norm: the norms stand on the direct path.": _post_norm,
            "There is no direct path: nothing is added.": _no_direct_path,
            "norm1 was used twice. The two norms have gains of their own.": (
                lambda x, norm1, attention, norm2, ffn: _block(x, norm1, attention, norm1, ffn)
            ),
            "The branches read the stream without its norms.": (
                lambda x, norm1, attention, norm2, ffn: _block(
                    x, lambda u: u, attention, lambda u: u, ffn
                )
            ),
        },
        hints=["Two lines: h = x + …, then return h + …. Each branch reads through its own norm."],
    ),
    Exercise(
        name="zero_branches",
        chapter=4,
        title="What does it prove?",
        difficulty=2,
        minutes=3,
        reference="one pair",
        wrong={
            "The gradient is exactly 1 here, for these branches. It says nothing of others.": (
                "proved"
            ),
            "1 is exact in every float format; rounding is not the reason.": "rounding",
            "1 · 1 · 1 … stays 1 at any depth; that is not the reason.": "depth",
            "With branches of zeros nothing passes back through the norms at all.": "norms",
        },
        hints=["Chapter 01: what is 1 + F′ for F(x) = −x?"],
    ),
    Exercise(
        name="leaks",
        chapter=4,
        title="Write the test",
        difficulty=4,
        minutes=12,
        reference=_leaks,
        cases=[(f, _STREAM) for f in _FUNCTIONS],
        wrong={
            "This finds no leak: shapes always agree, and nothing stands before position 1.": (
                lambda f, x: f(x).shape != x.shape
            ),
            "Outputs at the changed position and after it may move; those before it must "
            "not.": _anything_moves,
            "Only the last position was changed. Position 1 may see 2 and not the last.": _leaks_by(
                lambda row: row + row.flip(-1), lambda n: [n - 1]
            ),
            "Multiplying a position is invisible to an RMSNorm, and so is a leak through one.": (
                _leaks_by(lambda row: row * 5, lambda n: range(1, n))
            ),
            "Adding one number to all entries is invisible to a LayerNorm, as is a leak through "
            "one.": (_leaks_by(lambda row: row + 5, lambda n: range(1, n))),
        },
        hints=[
            "For every position t from 1 on: copy x, put random numbers in row t, run f again, and "
            "compare rows 0 … t − 1 of the outputs.",
            "changed = x.clone(); changed[t] = torch.randn(x.shape[1]); then "
            "torch.allclose(f(changed)[:t], f(x)[:t]).",
        ],
    ),
    Exercise(
        name="model_parameters",
        chapter=4,
        title="Count them all",
        difficulty=3,
        minutes=6,
        reference=_ALL,
        wrong={
            "The final norm is missing: 64 gains.": _ALL - 64,
            "The norms of the blocks are missing: two of 64 gains in each of two blocks.": (
                _ALL - 4 * 64
            ),
            "All five norms are missing, 64 gains each.": _ALL - 5 * 64,
            "The embedding was counted twice. It serves as the output matrix too.": _ALL + 65 * 64,
            "SwiGLU has three matrices: gate, up and down.": _ALL - 2 * 64 * 176,
            "That is one block; there are two.": _ALL - _BLOCK,
            "Attention was counted once a head; the heads share four matrices.": _ALL + 8 * 64**2,
        },
        hints=[
            "One block: four matrices of 64 × 64, three of 64 × 176, two gains of 64.",
            "Then 65 × 64 for the embedding and 64 for the final norm.",
        ],
    ),
)
