"""Gradient exchange between processes if an update may skip parameters."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


def mean_gradients(parameters: Sequence[nn.Parameter], processes: int) -> None:
    r"""Put \(\frac{1}{P} \sum_p g_p\) into `.grad` of every process; a missing gradient counts as 0.

    A parameter without a gradient in any process gets none, so that an optimiser leaves it unchanged.
    `DistributedDataParallel` expects a gradient of each parameter in an update's last forward pass, and gradients from
    an earlier pass of parameters unused in the last would stay in one process.
    """
    if not parameters:
        return
    device = parameters[0].device
    present = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32, device=device)
    torch.distributed.all_reduce(present, op=torch.distributed.ReduceOp.MAX)
    used = [one for one, anywhere in zip(parameters, present.tolist(), strict=True) if anywhere]
    if not used:
        return
    own = [torch.zeros_like(one) if one.grad is None else one.grad for one in used]
    summed = torch.cat([gradient.reshape(-1) for gradient in own])
    torch.distributed.all_reduce(summed)
    parts = (summed / processes).split([one.numel() for one in used])
    for parameter, gradient, mean in zip(used, own, parts, strict=True):
        gradient.copy_(mean.view_as(gradient))
        parameter.grad = gradient


def from_first(tensors: Iterable[Tensor]) -> None:
    """Broadcast the values of the first process."""
    for tensor in tensors:
        torch.distributed.broadcast(tensor.detach(), src=0)
