"""The device, and the exchange of gradients between processes."""

import torch
from accelerate import Accelerator

from infoflow.flow import processes
from infoflow.foundation import UserError


def make_accelerator(device: str = "auto") -> Accelerator:
    """An accelerator for `device`: "auto", "cpu", "cuda" or "mps". Precision is handled by our autocast.

    Several processes are joined here, and watch each other from now on (`infoflow.flow.processes`).
    """
    on_cpu = usable_device(device) == "cpu"
    if on_cpu:
        processes()  # a group with our patience; that of CUDA devices is formed by accelerate
    accelerator = Accelerator(cpu=on_cpu)
    processes()
    return accelerator


def usable_device(device: str) -> str:
    """The device to train on, with "auto" resolved.

    Raises:
        UserError: This machine has no such device.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = next(name for name in ("cuda", "mps", "cpu") if available[name])
    if not available.get(device, False):
        usable = ", ".join(name for name, usable in available.items() if usable)
        raise UserError(f'device must be "auto" or a device of this machine: {usable}. Got {device}.')
    return device
