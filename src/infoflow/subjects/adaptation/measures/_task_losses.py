"""The importance of each head to a tuned model: its ablation cost, and the gradient of a gate on it."""

# B example, V variant (the batch repeated), H head, K bootstrap block (64)

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS
from infoflow.heads import Head, HeadEdit, HeadSet, all_heads, by_first_block
from infoflow.models import FastLinear, Model, recorded_blocks, skipped_blocks, tap

from ._task_part import TaskBatch, TaskPart


def ablated_losses(model: Model, part: TaskPart, variants: Sequence[HeadSet]) -> Float[np.ndarray, "variant example"]:
    """Task loss of each example, in nats: of the tuned model, then with each set of heads ablated (output 0).

    The blocks below the lowest ablated head run once for all variants, and variants run together.
    """
    found = np.zeros((1 + len(variants), len(part)))
    for batch in part.batches:
        found[:, batch.index] = _of_batch(model, part, batch, variants)
    return found


def _of_batch(
    model: Model, part: TaskPart, batch: TaskBatch, variants: Sequence[HeadSet]
) -> Float[np.ndarray, "variant example"]:
    with torch.no_grad(), FastLinear():
        with recorded_blocks(model) as recorded:
            whole_B = part.task.example_losses(model.module, batch.batch)
        losses_VB = whole_B.repeat(1 + len(variants), 1)
        together = max(1, part.options.tokens_per_batch // batch.inputs["input_ids"].numel())
        changed = [{(stack, layer) for stack, _, layer, _ in heads} for heads in variants]
        for (stack, layer), members in by_first_block(model, changed).items():
            for start in range(0, len(members), together):
                some = members[start : start + together]
                edit = HeadEdit([variants[index] for index in some])
                with skipped_blocks(model, recorded, stack, layer, len(some)), tap(model, on_heads=edit):
                    losses = part.task.example_losses(model.module, batch.repeated(len(some)))
                losses_VB[[1 + index for index in some]] = losses.view(len(some), -1)
    return losses_VB.double().cpu().numpy()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeadCosts:
    """By how much the task's loss rises without each head, in sums per bootstrap block."""

    heads: list[Head]
    sums: Float[np.ndarray, "block head"]
    counts: Float[np.ndarray, " block"]


def head_costs(model: Model, part: TaskPart) -> HeadCosts:
    """The loss without each head minus the loss with it, over the examples of a part."""
    heads = all_heads(model.anatomy)
    losses_VB = ablated_losses(model, part, [frozenset([head]) for head in heads])
    sums = np.zeros((NUM_BLOCKS, len(heads)))
    np.add.at(sums, part.blocks, (losses_VB[1:] - losses_VB[:1]).T)
    counts = np.bincount(part.blocks, minlength=NUM_BLOCKS).astype(np.float64)
    return HeadCosts(heads=heads, sums=sums, counts=counts)


def task_importance(model: Model, part: TaskPart) -> dict[Head, float]:
    r"""The sensitivity of the task's loss to each head, normalised within each layer.

    $$ I_h = \mathbb{E}_x \left| \frac{\partial L(x)}{\partial \xi_h} \right|, \qquad
       \hat I_h = I_h \Big/ \sqrt{\textstyle\sum_{g \in \mathrm{layer}} I_g^2} $$

    The gate ξ of a head multiplies its input to the output projection and is 1; one backward pass per batch serves all
    heads. Dropout is off.

    Source: [@michel2019].
    """
    sites = list(model.anatomy.attentions())
    sums = [torch.zeros(one.num_heads, dtype=torch.float64) for one in sites]
    for batch in part.batches:
        rows = len(batch.inputs["input_ids"])
        gates = [torch.ones(rows, one.num_heads, device=model.device, requires_grad=True) for one in sites]
        by_kind: dict[tuple[str, str], list[Tensor]] = {}
        for one, gate in zip(sites, gates, strict=True):
            by_kind.setdefault((one.stack, one.kind), []).append(gate)
        with torch.enable_grad(), tap(model, gates=by_kind):
            total = part.task.example_losses(model.module, batch.batch).sum()
        for place, slope in enumerate(torch.autograd.grad(total, gates)):
            of_example = slope.double().unflatten(0, (len(batch.batch), batch.rows_each)).sum(1)
            sums[place] += of_example.abs().sum(0).cpu()
    norms = [float(one.norm()) or 1.0 for one in sums]
    return {
        (one.stack, one.kind, one.layer, head): float(values[head]) / norm
        for one, values, norm in zip(sites, sums, norms, strict=True)
        for head in range(one.num_heads)
    }
