"""Which heads a tuned model does not need."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from infoflow.flow import PassOptions
from infoflow.foundation import stream
from infoflow.heads import Head, ablate, all_heads
from infoflow.models import Model

from ._layer_swaps import mean_score, part_score
from ._scoring import Score
from ._seeds import without_tuned
from ._tables import TASK_PRUNING
from ._task import AbstractTask, TaskData
from ._task_losses import task_importance
from ._task_part import TaskPart

SHARES = (0.25, 0.5, 0.75)
"""Shares of all heads to ablate."""


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

    Heads are ablated in the order of `task_importance` on `dev`, least important first, or in random orders, separate
    for every tuned model; the score is on `test`. An ablated head outputs 0, as if cut out of the weights. Numbers are
    means over seeds (and draws).

    Args:
        after: Models tuned on one task.
        task: The task.
        data: Its parts.
        options: Seed, maximum length, batch size.
        shares: Shares of all heads.
        draws: Random orders for each model.
        ranked_on: At most this many examples of `dev`, chosen by hash.
        examples: At most this many of `test`.
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
        ("random", [[_at_random(heads, place, draw) for draw in range(draws)] for place in range(len(after))]),
    ):
        rows.append({"order": order, "removed": 0, **mean_score(whole, baseline)})
        for number in numbers:
            found = [
                _without(one, scored, data, each[:number])
                for one, own in zip(after, orders, strict=True)
                for each in own
            ]
            rows.append({"order": order, "removed": number, **mean_score(found, baseline)})
    schema = without_tuned(TASK_PRUNING)
    return schema.conform(pd.DataFrame(rows).assign(heads=len(heads)))


def _by_importance(model: Model, part: TaskPart) -> list[Head]:
    worth = task_importance(model, part)
    return sorted(worth, key=lambda head: (worth[head], head))


def _at_random(heads: Sequence[Head], model: int, draw: int) -> list[Head]:
    return [heads[place] for place in stream("task-pruning", model, draw).permutation(len(heads))]


def _without(model: Model, part: TaskPart, data: TaskData, heads: Sequence[Head]) -> Score:
    with ablate(model, heads):
        return part_score(model, part, data.train)
