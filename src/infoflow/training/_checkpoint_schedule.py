"""Which updates to keep, and the columns that say how far a row's checkpoint is in training."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import END, KEYS, SUFFIX, Column, TableSchema

from ._config import TrainConfig, learning_rate

DEFAULT_SCHEDULE = "log:16+linear:8"
"""Default schedule of the checkpoints to keep."""
_GRAMMAR = "Write log:K, linear:K, every:M, powers or a list such as 0,10,500; join several with +."
_MOST = 10**6  # steps of one schedule


def checkpoint_steps(schedule: str, updates: int, warmup: int = 0) -> list[int]:
    r"""Steps of a schedule, ascending; step 0, the last warm-up update and the last update are always included.

    Models change fast early on and slowly later, so the default, `log:16+linear:8`, combines both grids.

    | part | steps of N updates |
    |---|---|
    | `log:K` | \(s_1 = 1,\ s_{i+1} = \max(s_i + 1, \lfloor s_i (N/s_i)^{1/(K-i)} + \frac12 \rfloor)\): exactly K |
    | `linear:K` | \(\lfloor N i / K + \frac12 \rfloor\) for i = 1..K |
    | `every:M` | M, 2M, ... |
    | `powers` | 1, 2, 4, ... |
    | `0,10,500` | exactly these |

    Args:
        schedule: Parts, joined by `+`.
        updates: N, the updates of the whole training.
        warmup: Updates of the warm-up; 0: none.

    >>> checkpoint_steps("log:12", 5000)
    [0, 1, 2, 4, 9, 20, 44, 97, 213, 469, 1032, 2272, 5000]
    """
    if updates < 1 or not 0 <= warmup <= updates:
        raise UserError(
            f"A schedule needs at least 1 update, and no more warm-up updates than updates. Got {updates} updates and "
            f"{warmup} of warm-up."
        )
    steps = {0, warmup, updates}
    for part in schedule.split("+"):
        steps.update(_part(part.strip(), updates))
    return sorted(steps)


def select_steps(available: Sequence[int], k: int) -> list[int]:
    r"""`k` of the available steps, evenly in log time, including the first and the last; an available step 0 is added.

    After the i-th chosen step s, the later step nearest in log2 to \(s (a_n / s)^{1/(k-i)}\) is chosen (the smaller one
    in a tie), provided that it leaves enough steps for the rest. If there are at most `k` steps, all are chosen; with
    k = 1, the last one is.

    >>> select_steps([500, 1000, 1500, 2000, 2500, 3000], 4)
    [500, 1000, 1500, 3000]
    """
    steps = sorted(available)
    if k < 1 or len(set(steps)) < len(steps) or (steps and steps[0] < 0):
        raise UserError(
            "k must be at least 1, and the available steps must be distinct and at least 0. "
            f"Got k = {k} and the steps {list(available)[:20]}."
        )
    start, later = [step for step in steps if step == 0], [step for step in steps if step > 0]
    if k >= len(later):
        return start + later
    if k == 1:
        return [*start, later[-1]]
    chosen, last = [0], len(later) - 1
    for number in range(1, k):
        here = later[chosen[-1]]
        wanted = math.log2(here) + (math.log2(later[-1]) - math.log2(here)) / (k - number)
        candidates = range(chosen[-1] + 1, last - (k - number - 1) + 1)
        chosen.append(min(candidates, key=lambda at: (round(abs(math.log2(later[at]) - wanted), 12), later[at])))
    return start + [later[at] for at in chosen]


def _part(part: str, updates: int) -> Sequence[int]:
    word, colon, number = part.partition(":")
    if part == "powers":
        return [2**power for power in range(updates.bit_length()) if 2**power <= updates]
    if colon and word in _GRIDS:
        if not number.isdecimal() or not 1 <= int(number) <= _MOST:
            raise UserError(f"{word} takes a number from 1 to {_MOST:,}. Got {part[:80]!r}. {_GRAMMAR}")
        return _GRIDS[word](int(number), updates)
    listed = [item.strip() for item in part.split(",")]
    if not all(item.isdecimal() for item in listed):
        raise UserError(f"No schedule of checkpoints is called {part[:80]!r}. {_GRAMMAR}")
    steps = [int(item) for item in listed]
    if max(steps) > updates or len(set(steps)) < len(steps):
        raise UserError(
            f"The steps of a schedule must be different, and at most the last update, {updates}. Got {part[:80]!r}. "
            "Leave out repeated steps, and steps after the last update."
        )
    return steps


def _log(k: int, updates: int) -> Sequence[int]:
    if k >= updates:
        return range(1, updates + 1)
    steps = [1] if k > 1 else [updates]
    for number in range(1, k):
        here = steps[-1]
        steps.append(max(here + 1, math.floor(here * (updates / here) ** (1 / (k - number)) + 0.5)))
    return steps


def _linear(k: int, updates: int) -> Sequence[int]:
    if k >= updates:
        return range(1, updates + 1)
    return [(2 * updates * number + k) // (2 * k) for number in range(1, k + 1)]


_GRIDS = {"log": _log, "linear": _linear, "every": lambda number, updates: range(number, updates + 1, number)}


_NOT_MEASURED = (f"findings{SUFFIX}",)
NOT_THE_SAME = -1

CLOCKS = (
    Column("tokens", "float64", "tokens", "supervised tokens so far; NaN: unknown"),
    Column("progress", "float64", "", "share of the training's updates so far, from 0 to 1"),
    Column("lr_share", "float64", "", "sum of the learning rates so far, as a share of the whole sum; NaN: unknown"),
    Column(
        "same_as",
        "int64",
        "updates",
        "earlier checkpoint with exactly these weights, from which the row was copied; -1: none",
    ),
)
"""The columns that give a checkpoint's position in its training, in addition to `update` of `KEYS`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    update: int
    tokens: float = math.nan  # tokens used in the loss
    progress: float = math.nan
    lr_share: float = math.nan
    same_as: int = NOT_THE_SAME

    def columns(self) -> dict[str, Any]:
        return {column.name: getattr(self, column.name) for column in CLOCKS}


def over_training(schema: TableSchema) -> TableSchema:
    """The schema of a measure's table with rows for each checkpoint; it has another name, and key columns in front.

    Its rows have the number of updates in `update`, even at the last checkpoint.
    """
    description = f"{schema.description} At each checkpoint of the training."
    return schema.named(schema.at_checkpoints, description, (*KEYS, *CLOCKS, *schema.columns))


def measured_over_training(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of a run that have a schema from `over_training`, keyed by the names of the measures' own tables."""
    named = {name.removesuffix(SUFFIX): name for name in tables if name.endswith(SUFFIX) and name not in _NOT_MEASURED}
    return {name: tables[source] for name, source in named.items()}


def of_whole_course(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """The values of `KEYS` for a model's whole training, from a row of one of its checkpoints."""
    return {**{column.name: row[column.name] for column in KEYS}, "update": END, "trained": True}


def learning_rate_shares(config: TrainConfig, steps: Sequence[int]) -> list[float]:
    r"""The share \(\sum_{s \le t} \eta_s / \sum_s \eta_s\) at each step t, for the learning rates η of `config`."""
    sums = [0.0, *accumulate(learning_rate(update, config) for update in range(1, config.updates + 1))]
    return [sums[step] / sums[-1] for step in steps]


_NATS = "nats per token"

CHECKPOINTS = TableSchema(
    name="checkpoints",
    description="The checkpoints of a training run: where they come from, and what is recorded about them.",
    over_training=True,
    columns=(
        Column("name", "string", "", "folder or revision of the checkpoint"),
        Column("revision", "string", "", 'repository@branch on the hub; "": a folder'),
        Column("commit", "string", "", 'commit of the repository; "": a folder'),
        Column("sha256", "string", "", "SHA-256 of its weight files, in the order of their names"),
        Column("bytes", "int64", "bytes", "size of its weight files"),
        Column("dtype", "string", "", "type of most of its stored weights, which are read as float32"),
        Column("lr", "float64", "", "learning rate as recorded by its training; NaN: unknown"),
        Column("training_loss", "float64", _NATS, "training loss as recorded by its training; NaN: unknown"),
        Column("validation_loss", "float64", _NATS, "held-out loss as recorded by its training; NaN: unknown"),
        Column(
            "sample_loss",
            "float64",
            _NATS,
            "loss on a few uncorrupted sentences, which are the same at every checkpoint; NaN: no token",
        ),
        Column(
            "skipped", "float64", "updates", "updates that its training had skipped so far, as recorded; NaN: unknown"
        ),
        Column("excluded", "bool", "", "whether the checkpoint is left out of the other tables: see checkpoint_checks"),
    ),
)
