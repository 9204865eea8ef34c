"""Other designs: norms by name in NORMS, blocks by name in ORDERS.

Each does what the taught one does, but for what its name says.
"""

from __future__ import annotations

from torch import nn

from tiny_lm.config import ModelConfig
from tiny_lm.layers import BLOCKS, NORMS, TransformerBlock
from tiny_lm.variants import branches, norms, orders, streams

__all__ = ["NORMS", "ORDERS", "stack"]

NORMS |= {  # the dict of layers.py: a block looks its norm up there when it is made
    "rms_pure": norms.PureRMSNorm,
    "rms_offset": norms.OffsetRMSNorm,
    "rms_floor": norms.FloorRMSNorm,
    "dyt": norms.DynamicTanh,
}

ORDERS: dict[str, type[TransformerBlock]] = BLOCKS | {
    "bare": orders.BareBlock,
    "sandwich": orders.SandwichBlock,
    "deepnorm": orders.DeepNormBlock,
    "rezero": orders.ReZeroBlock,
    "parallel": branches.ParallelBlock,
    "layerscale": branches.LayerScaleBlock,
    "inverse_root": branches.InverseRootBlock,
    "embed_norm": branches.EmbedNormBlock,
    "qk_norm": branches.QKNormBlock,
    "hyper": streams.HyperBlock,
}


def stack(config: ModelConfig) -> nn.ModuleList:
    """The blocks of a model; those that depend on their place are told it."""
    block, places = ORDERS[config.order], range(config.n_layers)
    if issubclass(block, branches.PlacedBlock):
        return nn.ModuleList(block(config, place) for place in places)
    return nn.ModuleList(block(config) for _ in places)
