"""Where the numbers of the text come from that no cell beside them computes, by chapter.

Each is an expression that rounds to what the text says, or a name that the test looks up:
"chapter 03" (a cell of that chapter computes it), a file of this repository that has the number,
or words of the text itself: the publication or the setting that it belongs to.
"""

import json
from math import acos, atanh, e, exp, log, pi, sqrt
from pathlib import Path
from statistics import fmean

import torch

from tiny_lm import pretrained
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes.jacobian import microscope
from tiny_lm.probes.training import HALFWAY, Run
from tiny_lm.taps import Recorder

DATA = Path(__file__).parents[1] / "tiny_lm" / "data"


def stored(name):
    """One of the package's stored tables."""
    return json.loads((DATA / name).read_text("utf-8"))


def spacing(x, digits):
    """From x to the next number with so many binary digits."""
    exponent = 0
    while 2 ** (exponent + 1) <= x:
        exponent += 1
    return 2.0 ** (exponent + 1 - digits)


FP16, BF16, FP32 = 11, 8, 24  # binary digits
SHIPPED, _ = pretrained.load("stories")
LARGEST_FP16 = (2 - 2**-10) * 2**15
RMS = sqrt((3**2 + 4**2) / 2)  # of [3, 4]
# SmolLM2: embedding, blocks of attention, FFN and two norms, the final norm
ONE_BLOCK = 2 * 576**2 + 2 * 576 * 192 + 3 * 576 * 1536 + 2 * 576
SMOLLM2 = 49_152 * 576 + 30 * ONE_BLOCK + 576


def rms(weight):
    return weight.detach().square().mean().sqrt().item()


def final_norm_on_logits():
    """How many times larger it makes the logits of chapter 04's untrained model."""
    sizes = {"vocab_size": 65, "n_layers": 2, "d_model": 64, "n_heads": 2, "d_ff": 176}
    model, tap = TinyLM(ModelConfig(**sizes)), Recorder()
    with torch.no_grad():
        logits = model(torch.arange(16)[None], tap=tap)
        without = tap["blocks.1.resid.ffn"] @ model.embedding.weight.T
    return (logits.std() / without.std()).item()


def kernels():
    """Every single ratio of RMSNorm's to LayerNorm's time with torch's kernels, norm alone."""
    times = next(iter(stored("norm_speed.json").values()))
    names = [n for n in times if n.startswith("torch's kernels, forward")]
    return [ratio for name in names for ratio in times[name]]


def designs(pattern):
    """What chapter 09's table has for the three seeds of a setting."""
    table = stored("designs.json")["results"]
    return [table[pattern.format(seed=seed)] for seed in range(3)]


ELSEWHERE: dict[str, dict[str, float | str]] = {
    "00": {"100": "repeated 30 or 100 times"},
    "01": {
        "0.88": atanh(sqrt(1 / 2)),  # 2 (1 − tanh²) = 1
        "0.64": acos(-1 / 3) / 3,  # 1 + 3 cos(3x) = 0
        "1.46": (2 * pi - acos(-1 / 3)) / 3,
        "0.03": 1 / sqrt(1024),
        "0.0228": 1 - 0.1 ** (1 / 100),
        "0.0233": 10 ** (1 / 100) - 1,
        "1.031": microscope("tanh(W x)", gain=-1.0).singular_values[0],
        "1.0078": 1 + spacing(1, BF16),
        "257": 256 + spacing(256, BF16) / 2,
        "258": 256 + spacing(256, BF16),
        "0.0039": spacing(1, BF16) / 2,
        "0.0005": spacing(1, FP16) / 2,
    },
    "02": {
        "12.5": RMS**2,
        "3.8e-6": spacing(50, FP32),
        "9.5e-7": spacing(12.5, FP32),
        "1.283": 1 + 1 / RMS,
        "3.54": RMS,
        "4.54": RMS + 1,
        "5.54": RMS + 2,
        "9.5": microscope("RMSNorm(x)", gain=1.0, layers=30).largest[-1],
    },
    "03": {
        "0.00316": sqrt(1e-5),
        "12.5": RMS**2,
        "12.50001": RMS**2 + 1e-5,
        "1250": 100 * RMS**2,
        "1250.00001": 100 * RMS**2 + 1e-5,
        "1.2%": 1 - 0.02 / sqrt(0.02**2 + 1e-5),
        "15%": sqrt(4 / 3) - 1,
        "100": "make epsilon 100 times larger",
        "120": sqrt(7 + 1 / 1e-5) / sqrt(7),  # seven words and the padding, clipped
        "0.00003": 1e-7 / sqrt(1e-5),
        "0.003": sqrt(1e-5),
        "0.577": 1 / sqrt(3),
        "0.707": 1 / sqrt(2),
        "0.0031623": sqrt(1e-5),
        "7.02": 0.99 / sqrt(1 - 0.99**2),
        "0.022193": 0.99 / sqrt(1 - 0.99**2) * sqrt(1e-5),
        "316": 1 / sqrt(1e-5),
        "0.025": LARGEST_FP16 ** (-1 / 3),
        "2.3e-10": LARGEST_FP16**-2,
        "1.384": 1 + 128 * 0.003,
        "226": 256 * RMS / 4,  # its larger entry is 256
        "1.13": 4 / RMS,
        "854": "tests/test_probes_epsilon.py",
        "0.0039": 2**-8,
        "0.0005": spacing(10_000, FP32) / 2,
        "511": 512 - 1,
        "0.58": 1 / sqrt(3),
        "5.8986": "llama.cpp pull request 2374",
        "5.8283": "llama.cpp pull request 2374",
    },
    "04": {
        "2.718": e,
        "6.3": 2 * pi,
        "171": 8 / 3 * 64,
        "12.5": 0.9**-24,
        "0.02": "tiny_lm/initial.py",
        "45": final_norm_on_logits(),
        "49152": "chapter 08",
        "65504": LARGEST_FP16,
    },
    "05": {
        "0.001": "1? 0.001? 1000?",
        "4.3e9": sqrt(2) ** 64,
        "129": 1 + 128,
        "0.0013": 64 * 0.02**2 / 2 * 256 * 0.02**2,
        "0.014": 2 ** (2 / 100) - 1,
        "1.8e16": 2.0**54,
        "3.5": sum(1 / (j + 2) for j in range(50)),
        "0.7": sum(1 / (50 + j + 1) for j in range(50)),
        "0.996": sqrt(128 / 129),
    },
    "06": {
        "2.7": "A loss of 2.7: is that good?",
        "2.08": log(8),
        "1.6": exp(0.479),
        "0.02": "tiny_lm/initial.py",
        "0.003": Run().lr,
    },
    "07": {
        "3.8": log(45),
        "3.81": log(45),
        "0.2": rms(SHIPPED.embedding.weight),
        "0.05": "tiny_lm/probes/operating.py",
        "0.4%": 2**-8,  # of bfloat16
        "1.4": SHIPPED.norm_final.scale.min().item(),
        "1.9": SHIPPED.norm_final.scale.max().item(),
        "12.5": RMS**2,
        "0.85": 3 / RMS,
    },
    "08": {
        "112": "tests/test_probes_real.py",
        "0.14": "tests/test_probes_real.py",
        "2.5": "tests/test_probes_real.py",
        "800": "tests/test_probes_real.py",
        "43%": 41.9 / 29.2 - 1,
        "507": "chapter 08",
        "576": "chapter 08",
        "10.7": sqrt(LARGEST_FP16 / 576),
        "113184": "chapter 06",
        "4.3": "tests/test_probes_real.py",
        "135": SMOLLM2 / 1e6,
    },
    "09": {
        "0.001": "tiny_lm/probes/comparing.py",
        "0.02": "tiny_lm/initial.py",
        "30%": "RMSNorm is 30 % faster",
        "0.0025": "chapter 03",
        "0.18": fmean(found["stream"][0] for found in designs("pre blocks=4 seed={seed}")),
        "2.35": max(found["loss"] for found in designs("layer lr=0.1 seed={seed}")),
        "2.34": HALFWAY,
        "1.4": min(kernels()),
        "4.8": max(kernels()),
        "65504": LARGEST_FP16,
    },
}
