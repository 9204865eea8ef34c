"""A model whose weights are shared out among processes: each keeps an equal part of every one.

A process holds the whole of a block only while it works there; gradients and AdamW's means exist in
parts alone. What is computed is what one process computes. Tried on processors of one machine; what
changes on many GPUs is said at `shard`.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tiny_lm.model import TinyLM
from tiny_lm.shapes import fail

NEEDED = (2, 8)  # of torch


def shard(model: TinyLM) -> TinyLM:
    """Share a model out among the processes of torchrun, in place: `model -> the same model`.

    Block by block, then what is left: embedding, final norm, output. To be called before the
    optimizer is made, by every process with the same weights. Raises ValueError where
    torch.distributed is not running, and ImportError for a torch before 2.8: on processors, 2.6
    stops in the first forward pass, and 2.7 adds gradients up without a way to tell it not to.

    On many GPUs the modules stay and this function grows: `init_process_group("nccl")` and a device
    for each rank; a mesh of two axes, `(machines, GPUs)`, so that whole weights cross only the fast
    wires inside a machine; `MixedPrecisionPolicy(bfloat16, reduce_dtype=float32)`; the model built
    on "meta" and filled after sharding; `block.compile()` before each block is wrapped; and the run
    file by torch.distributed.checkpoint, to which every process writes its own part. None of that
    was run here.

    Source: Zhao et al. 2023 (PyTorch FSDP), arXiv 2304.11277.
    """
    if tuple(map(int, torch.__version__.split(".")[:2])) < NEEDED:
        raise ImportError(f"shard: expected torch 2.8 or newer, got {torch.__version__}")
    if not dist.is_initialized():
        fail("shard", "processes started by torchrun", "one on its own")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    for module in (*model.blocks, model):
        # In parts also after a forward pass that no backward pass follows.
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
        # Gloo has no mean: asked for one, torch 2.8 gets its sum and takes it for the mean.
        module.set_force_sum_reduction_for_comms(mesh.device_type == "cpu")
    return model


def is_sharded(model: nn.Module) -> bool:
    """Whether its parameters are parts."""
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def whole(tensor: Tensor) -> Tensor:
    """The tensor that the parts of all processes make up; all of them have to ask for it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def part(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part of a whole tensor, cut as `like` is; all have to take theirs."""
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)


def gathered(model: TinyLM) -> TinyLM:
    """A copy that is whole again, on the CPU; all processes have to take part."""
    copy = TinyLM(model.config)
    copy.load_state_dict({name: whole(value).cpu() for name, value in model.state_dict().items()})
    return copy
