"""Temporarily disables a module's dropout and gradients."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every part gets its own mode back."""
    modes = [(child, child.training) for child in module.modules()]
    try:
        module.eval()
        with torch.no_grad():
            yield
    finally:
        for child, mode in modes:
            child.training = mode
