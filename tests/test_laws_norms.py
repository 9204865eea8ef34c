"""Laws that every norm keeps, whether on lists, in NumPy, in torch or with a backward of its own.

A norm added to layers.NORMS is held to them at once. One that breaks a law has to say why in
EXCEPTIONS, and is shown to break it.
"""

from itertools import cycle

import pytest
import torch
from implementations import NORM_MAKERS, InNumPy, ManyRMSNorm, normal, slope
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from tiny_lm import fast
from tiny_lm.layers import NORMS, RMSNorm
from tiny_lm.shapes import shape_of

EXCEPTIONS = {
    ("scale", "dyt"): "a curve, not a quotient: it has no eps",
    ("size", "dyt"): "a curve, not a quotient: it has no eps",
    ("twice", "dyt"): "a curve is bent again by itself",
    ("radial", "dyt"): "a curve, not a quotient: it has no eps",
    **{("shift", name): "only LayerNorm takes the mean away" for name in NORM_MAKERS},
}
del EXCEPTIONS["shift", "layer"]


def scale(make, x, gain, c, eps):
    """norm(c·x; eps) = norm(x; eps / c²)."""
    return make(len(gain), eps, gain)(c * x), make(len(gain), eps / c**2, gain)(x)


def size(make, x, gain, c, eps):
    """Without eps the size of a row does not matter, up to the last bit for a power of two."""
    norm, power = make(len(gain), 0.0, gain), 2.0 ** round((c - 1.5) * 200)
    y = norm(x)
    return (norm(power * x) != y).double(), torch.zeros_like(y)


def order(make, x, gain, c, eps):
    """Coordinates have no order: norm(x[p]; gain[p]) = norm(x; gain)[p]."""
    p = torch.randperm(len(gain), generator=torch.Generator().manual_seed(len(gain)))
    return make(len(gain), eps, gain[p])(x[..., p]), make(len(gain), eps, gain)(x)[..., p]


def sign(make, x, gain, c, eps):
    """norm(-x) = -norm(x)."""
    norm = make(len(gain), eps, gain)
    return norm(-x), -norm(x)


def rows(make, x, gain, c, eps):
    """A row does not see another, whatever its size."""
    norm = make(len(gain), eps, gain)
    larger = torch.cat([x, 1e6 * c * x], dim=0)
    return norm(larger)[: len(x)], torch.stack([norm(row) for row in x])


def twice(make, x, gain, c, eps):
    """Without eps and gain, what is normed stays as it is."""
    norm = make(len(gain), 0.0, torch.ones_like(gain))
    return norm(norm(x)), norm(x)


def shift(make, x, gain, c, eps):
    """norm(x + c) = norm(x)."""
    norm = make(len(gain), eps, gain)
    return norm(x + c), norm(x)


def radial(make, x, gain, c, eps):
    """x·dL/dx = -2 eps · dL/d eps, row by row: the scale law, derived by c at c = 1."""
    dy, step = normal(*x.shape, seed=7), 1e-4 * eps
    above, below = (make(len(gain), eps + e, gain)(x) for e in (step, -step))
    along = (x * slope(make(len(gain), eps, gain), x, dy)).sum(-1)
    return along, -2 * eps * (dy * (above - below) / (2 * step)).sum(-1)


LAWS = {law.__name__: law for law in (scale, size, order, sign, rows, twice, shift, radial)}
# Beside roundings: central differences in eps are off by step²/eps² = 1e-8 of the slope.
TOLERANCE = {"radial": 1e-6, "twice": 1e-10, "shift": 1e-9}
# Every width, leading shape and eps with nearly every other: (width, leading, c, eps, seed).
CASES = list(
    zip(
        cycle(range(2, 10)),
        cycle([(1,), (3,), (1, 1), (2, 3), (3, 2)]),
        [0.1 * 30 ** (i / 23) for i in range(24)],
        cycle([1e-3, 1e-2, 1.0]),
        range(24),
        strict=False,
    )
)
PAIRS = [(law, name) for law in LAWS for name in NORM_MAKERS if (law, name) != ("radial", "lists")]


def named(case):
    """The message of a difference, with the case in which it was found."""
    return lambda message: f"{case}: {message}"


@pytest.mark.parametrize(("law", "name"), [pair for pair in PAIRS if pair not in EXCEPTIONS])
def test_every_norm_keeps_every_law(law, name):
    for case in CASES:
        width, leading, c, eps, seed = case
        x, gain = normal(*leading, width, seed=seed), 0.5 + normal(width, seed=seed + 1).abs()
        got, wanted = LAWS[law](NORM_MAKERS[name], x, gain, c, eps)
        assert got.shape == wanted.shape
        # Two coordinates nearly equal leave LayerNorm a small difference of larger numbers.
        spread = float(x.std(-1).min())
        tolerance = TOLERANCE.get(law, 1e-12) / min(1.0, spread)
        assert_close(got, wanted, rtol=tolerance, atol=tolerance, msg=named(case))


@pytest.mark.parametrize(("law", "name"), EXCEPTIONS)
def test_every_exception_is_one(law, name):
    x, gain = normal(2, 3, 8), 0.5 + normal(8, seed=1).abs()
    got, wanted = LAWS[law](NORM_MAKERS[name], x, gain, 1.7, 1e-2)
    assert (got - wanted).abs().max() > 1e-3


TORCH_NORMS = {**NORMS, "fast": fast.FastRMSNorm, "fast, many": ManyRMSNorm}
torch_norms = pytest.mark.parametrize("name", TORCH_NORMS)


@torch_norms
def test_slopes_and_their_slopes_are_those_of_the_forward(name):
    norm = NORM_MAKERS[name](5, 1e-2, 0.5 + normal(5).abs())
    turned = normal(5, 3, seed=1).T.requires_grad_()
    inputs = (turned, *norm.parameters())

    def forward(x, *_):
        return norm(x)

    assert gradcheck(forward, inputs) and gradgradcheck(forward, inputs)
    y, dy = norm(turned), normal(3, 5, seed=2)
    once, again = (
        torch.autograd.grad(y, inputs, dy, retain_graph=True, create_graph=graph)
        for graph in (False, True)
    )
    for one, other in zip(once, again, strict=True):  # fast/norm has a way of its own for each
        assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@torch_norms
def test_float32_inside_one_rounding_and_the_dtype_of_x_out(name, dtype):
    """C01, C02, C08: parameters in float32, rows from 2^-12 to 2^12, so squares to 2^24."""
    for width, power in zip(cycle([1, 2, 3, 8, 17, 40]), range(-12, 13), strict=False):
        norm = TORCH_NORMS[name](width, eps=1e-6)
        x = (normal(1, width, seed=power + 12) * 2.0**power).to(dtype)
        y, exact = norm(x), TORCH_NORMS[name](width, eps=1e-6).double()(x.double())
        assert y.dtype == dtype and y.shape == x.shape
        info = torch.finfo(dtype)
        half_ulp = info.eps / 2 * (1 if info.bits == 16 else 16)  # 16: a sum of 40 in float32
        # What was subtracted is not rounded less: LayerNorm's error follows the largest coordinate.
        lost = 2e-6 * float(x.double().abs().max() / (x.double().std(correction=0) + 1e-3))
        lost = lost if name == "layer" else 2e-6
        atol = info.smallest_normal * info.eps / 2 + lost * (1 if dtype != torch.float64 else 1e-8)
        assert_close(y.double(), exact, rtol=half_ulp, atol=atol, msg=named((width, power)))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", NORM_MAKERS)
def test_what_is_no_number_stays_in_its_row(name):
    """C14."""
    norm, x = NORM_MAKERS[name](4, 1e-5, torch.ones(4).double()), normal(3, 4)
    clean = norm(x)
    for broken in (torch.nan, torch.inf):
        x[1, 2] = broken
        y = norm(x)
        assert torch.equal(y[[0, 2]], clean[[0, 2]]) and not torch.equal(y[1], clean[1])
    if name != "lists":
        dx = slope(norm, x, torch.ones_like(x))
        assert dx[[0, 2]].isfinite().all()


@pytest.mark.parametrize("name", NORM_MAKERS)
def test_a_zero_row_and_its_slope(name):
    """C12: nothing comes out, and a slope grows by 1/sqrt(eps); tanh's by alpha, one half."""
    gain = torch.tensor([1.0, 2.0]).double()
    norm, x = NORM_MAKERS[name](2, 1e-4, gain), torch.zeros(1, 2).double()
    assert norm(x).tolist() == [[0.0, 0.0]]
    if name != "lists":
        steep = 0.5 if name == "dyt" else 100.0
        wanted = steep * (torch.ones(2) if name == "rms_pure" else gain).double()
        if name == "layer":
            wanted = wanted - wanted.mean()
        assert_close(slope(norm, x, torch.ones_like(x))[0], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NORM_MAKERS if name != "lists"])
def test_every_norm_refuses_alike(name):
    """C04, C16, C17: in its own name, or in that of the norm it stands in for."""
    kind = NORM_MAKERS[name](4, 1e-5, torch.ones(4).double())
    who = "RMSNorm" if name.startswith(("fast", "numpy")) else type(kind).__name__

    def refused(message, call):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == f"{who}: expected {message}"

    for shape in ((2, 5), (2, 1), (4, 2), ()):
        x = torch.zeros(shape).double()
        refused(f"[..., 4], got {shape_of(x)}", lambda x=x: kind(x))
    if not isinstance(kind, InNumPy):  # whose Tensor makes floats of whole numbers
        hint = "write 3.0 for 3, or call .float()"
        message = f"floating-point numbers, got torch.int64 ({hint})"
        refused(message, lambda: kind(torch.zeros(2, 4).long()))
        who = "RMSNorm" if isinstance(kind, RMSNorm) else who
        refused("width >= 1, got 0", lambda: TORCH_NORMS[name](0))
        refused("eps >= 0, got -1", lambda: TORCH_NORMS[name](4, eps=-1))
        refused("eps >= 0, got nan", lambda: TORCH_NORMS[name](4, eps=torch.nan))
