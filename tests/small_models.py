"""A small model in float64 whose gains are far from one, for tests of what looks inside models."""

from functools import cache

import torch

from tiny_lm.model import ModelConfig, TinyLM

IDS, OTHERS = [3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1]


@cache
def small_model(seed=0, **changed):
    """Three blocks of width 8 over 11 tokens; do not change its weights."""
    sizes = {"vocab_size": 11, "max_len": 32, "n_layers": 3, "d_model": 8, "n_heads": 2, "d_ff": 12}
    model = TinyLM(ModelConfig(**(sizes | changed)), seed=seed, init="fan_in").double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.uniform_(0.3, 3.0, generator=generator)
    return model.eval()
