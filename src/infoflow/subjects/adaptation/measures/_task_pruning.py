"""Which heads a tuned model needs, and whether they are the same for different tasks."""

# B example, V variant (the batch repeated), H head, K bootstrap block (64)

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from infoflow.flow import PassOptions
from infoflow.foundation import UserError, block_sums, stream
from infoflow.heads import Head, HeadEdit, HeadSet, ablate, all_heads, by_first_block, expected_jaccard
from infoflow.models import FastLinear, Model, open_gates, recorded_blocks, skipped_blocks, tap
from infoflow.representations import spearman_rows
from infoflow.results import Column, TableSchema, estimate, estimate_columns, scale_of

from ._layers_after_tuning import mean_score, part_score
from ._scoring import Score
from ._states import tuned_table
from ._tables import TASK_PRUNING
from ._task import AbstractTask, TaskData
from ._task_parts import TaskBatch, TaskPart


def ablated_losses(model: Model, part: TaskPart, variants: Sequence[HeadSet]) -> Float[np.ndarray, "variant example"]:
    """Task loss of each example, in nats, first with all heads, then with each set of heads ablated (output 0)."""
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


def head_costs(model: Model, part: TaskPart) -> tuple[Float[np.ndarray, "block head"], Float[np.ndarray, " block"]]:
    """The loss without each head minus the loss with it, as sums over the examples of each bootstrap block, and the
    number of examples in each block.
    """
    losses_VB = ablated_losses(model, part, [frozenset([head]) for head in all_heads(model.anatomy)])
    sums = block_sums((losses_VB[1:] - losses_VB[:1]).T, part.blocks)
    return sums, block_sums(np.ones(len(part)), part.blocks)


def task_importance(model: Model, part: TaskPart) -> dict[Head, float]:
    r"""The sensitivity of the task's loss to each head, normalised within each layer.

    $$ I_h = \mathbb{E}_x \left| \frac{\partial L(x)}{\partial \xi_h} \right|, \qquad
       \hat I_h = I_h \Big/ \sqrt{\textstyle\sum_{g \in \mathrm{layer}} I_g^2} $$

    The gate ξ of a head, which is 1, multiplies its input to the output projection. One backward pass per batch gives
    all heads. Dropout is off.

    Source: [@michel2019].
    """
    sites = list(model.anatomy.attentions())
    sums = [torch.zeros(one.num_heads, dtype=torch.float64) for one in sites]
    for batch in part.batches:
        rows = len(batch.inputs["input_ids"])
        by_kind = open_gates(model, rows)
        gates = [by_kind[one.stack, one.kind][one.layer] for one in sites]
        with torch.enable_grad(), tap(model, gates=by_kind):
            total = part.task.example_losses(model.module, batch.batch).sum()
        for index, slope in enumerate(torch.autograd.grad(total, gates)):
            of_example = slope.double().unflatten(0, (len(batch.batch), batch.rows_each)).sum(1)
            sums[index] += of_example.abs().sum(0).cpu()
    norms = [float(one.norm()) or 1.0 for one in sums]
    return {
        (one.stack, one.kind, one.layer, head): float(values[head]) / norm
        for one, values, norm in zip(sites, sums, norms, strict=True)
        for head in range(one.num_heads)
    }


# Which heads a tuned model does not need.

SHARES = (0.25, 0.5, 0.75)  # shares of all heads to ablate


def task_pruning(
    after: Sequence[Model],
    task: AbstractTask,
    data: TaskData,
    options: PassOptions | None = None,
    *,
    shares: Sequence[float] = SHARES,
    draws: int = 2,
    ranked_on: int = 128,
    examples: int = 300,
) -> pd.DataFrame:
    """The table `TASK_PRUNING` without the columns of `TUNED`: the score at each number of ablated heads.

    Heads are ablated in the order of `task_importance` on `dev`, least important first, or in random orders (`draws`);
    every tuned model has its own orders. The score is on `test`. An ablated head outputs 0, as if its weights were
    removed. Numbers are means over seeds (and draws).
    """
    options = options or PassOptions()
    ranked = TaskPart(task, data.dev, after[0], options, most=ranked_on)
    scored = TaskPart(task, data.test, after[0], options, most=examples)
    heads = all_heads(after[0].anatomy)
    numbers = sorted({max(1, round(share * len(heads))) for share in shares})
    whole = [part_score(one, scored, data.train) for one in after]
    baseline = float(np.mean([one.row["value"] for one in whole]))
    rows = []
    for order, orders in (
        ("importance", [[_by_importance(one, ranked)] for one in after]),
        ("random", [[_at_random(heads, index, draw) for draw in range(draws)] for index in range(len(after))]),
    ):
        rows.append({"order": order, "removed": 0, **mean_score(whole, baseline)})
        for number in numbers:
            found = [
                _without(one, scored, data, each[:number])
                for one, own in zip(after, orders, strict=True)
                for each in own
            ]
            rows.append({"order": order, "removed": number, **mean_score(found, baseline)})
    return tuned_table(TASK_PRUNING, pd.DataFrame(rows).assign(heads=len(heads)))


def _by_importance(model: Model, part: TaskPart) -> list[Head]:
    worth = task_importance(model, part)
    return sorted(worth, key=lambda head: (worth[head], head))


def _at_random(heads: Sequence[Head], model: int, draw: int) -> list[Head]:
    return [heads[place] for place in stream("task-pruning", model, draw).permutation(len(heads))]


def _without(model: Model, part: TaskPart, data: TaskData, heads: Sequence[Head]) -> Score:
    with ablate(model, heads):
        return part_score(model, part, data.train)


# Whether the same heads matter for different tasks.

_KEYS = ["stack", "kind", "layer", "head"]
KEPT = 0.25  # share of the heads that count as most important

HEAD_OVERLAP = TableSchema(
    name="head_overlap",
    version=2,
    description="Do two tasks need the same heads in models tuned from one pretrained model?",
    columns=(
        Column("task_a", "string", "", "one task"),
        Column("task_b", "string", "", "the other"),
        Column(
            "measure",
            "string",
            "",
            "spearman: correlation of the importance of all heads; jaccard: overlap of the most important quarter",
        ),
        *estimate_columns("1", "agreement of the two tasks", "expected for unrelated tasks", "heads"),
    ),
)


def head_overlap(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    r"""The table `HEAD_OVERLAP` for every pair of tasks, from `TUNING_HEADS` by task, of one model and method.

    $$ \rho(v_a, v_b), \qquad J = \frac{|A \cap B|}{|A \cup B|} $$

    v is the cost of each head (`value`: the rise of the task's loss without it), A the quarter of the heads with the
    highest cost for a task. Intervals are over examples, separately for each task. Chance: 0, and the expected overlap
    of two random quarters.
    """
    worth = {name: _values(table) for name, table in tables.items()}
    rows: list[dict[str, Any]] = []
    for a, b in combinations(worth, 2):
        if not worth[a][0].equals(worth[b][0]):
            raise UserError(
                f"Heads can only be compared between tasks of the same model. {a} and {b} have different heads: use "
                "tables of models tuned from the same pretrained model."
            )
        (_, first), (_, second) = worth[a], worth[b]
        kept = max(1, round(KEPT * first.shape[1]))
        chance = expected_jaccard(first.shape[1], kept, kept)
        overlaps = np.array([_jaccard(x, y) for x, y in zip(first, second, strict=True)])
        measured = {"spearman": (spearman_rows(first, second), 0.0), "jaccard": (overlaps, chance)}
        for measure, (values, baseline) in measured.items():
            found = estimate(float(values[0]), values[1:], baseline, first.shape[1], scale=scale_of(measure))
            rows.append({"task_a": a, "task_b": b, "measure": measure, **found})
    return HEAD_OVERLAP.conform(pd.DataFrame(rows, columns=HEAD_OVERLAP.column_names))


def _values(table: pd.DataFrame) -> tuple[pd.DataFrame, Float[np.ndarray, "row head"]]:
    """Keys of the heads in order, and the cost of each: the estimate, then its replicates."""
    ordered = table.sort_values(_KEYS, kind="stable").reset_index(drop=True)
    replicates = np.array([np.asarray(one, dtype=np.float64) for one in ordered["replicates"]]).T
    return ordered[_KEYS], np.concatenate([ordered["value"].to_numpy(dtype=np.float64)[None], replicates])


def _jaccard(x: Float[np.ndarray, " head"], y: Float[np.ndarray, " head"]) -> float:
    first, second = (_most(one) for one in (x, y))
    return len(first & second) / len(first | second)


def _most(values: Float[np.ndarray, " head"]) -> set[int]:
    """Indices of the most important quarter; among equal heads, the first ones count."""
    return set(np.argsort(-values, kind="stable")[: max(1, round(KEPT * len(values)))].tolist())
