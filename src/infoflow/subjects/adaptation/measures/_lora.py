"""Low-rank adapters for the query and value projections."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from infoflow.foundation import UserError, hash64
from infoflow.models import Anatomy, discover


def add_adapters(module: PreTrainedModel, head: frozenset[str], *, rank: int, alpha: float, seed: int) -> None:
    r"""Add an adapter to each query and value projection; only the adapters and the `head` are trained.

    $$ W x \;\to\; W x + \tfrac{\alpha}{r} B A x $$

    A (r, in) is initialised at random from `seed`, and B (out, r) at 0, so that the model starts as the pretrained one.
    If a family keeps queries, keys and values in one matrix (GPT-2), the adapter covers all of it.

    Raises:
        UserError: The model has no such projections.

    Source: [@hu2022lora].
    """
    from peft import LoraConfig, inject_adapter_in_model

    targets = projections(discover(module.eval()))
    if not targets:
        raise UserError(
            f"method = lora adds adapters to queries and values, and {type(module).__name__} has none that are "
            "known. Choose full, top, decay or frozen."
        )
    turned = isinstance(module.get_submodule(targets[0]), Conv1D)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, fan_in_fan_out=turned, lora_dropout=0.0)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(hash64("adapters", seed) % 2**63)
        inject_adapter_in_model(config, module)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in head or _is_adapter(name))


def projections(anatomy: Anatomy) -> list[str]:
    """Names of the modules that project to queries or values, in the order of the layers."""
    found = (
        projection.weight.parameter.removesuffix(".weight")
        for attention in anatomy.attentions()
        for projection in (attention.query, attention.value)
        if projection is not None
    )
    return list(dict.fromkeys(found))


def merge_adapters(module: PreTrainedModel) -> None:
    """Merge the adapters into the weights that they adapt, and remove them, in place."""
    for name, layer in list(_adapted(module)):
        layer.merge(safe_merge=True)
        module.set_submodule(name, layer.get_base_layer())


def _adapted(module: nn.Module) -> Iterator[tuple[str, Any]]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return ((name, child) for name, child in module.named_modules() if isinstance(child, BaseTunerLayer))


def _is_adapter(name: str) -> bool:
    return "lora_" in name
