"""Times of n-gram stages in two trainings that differ only in their warm-up."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import KEYS, Column, TableSchema
from infoflow.training import of_whole_course

WARMUP_FACTOR = 4
CHECKPOINT_STEPS = {"updates": 1, "rates": 2}
"""Tolerance of a stage's time, in steps between checkpoints.

Each minimum is at most half a step from its checkpoint, and while the rate rises its sum grows with the square of the
updates.
"""
"""How many times as long the second warm-up must be: of another factor the published numbers say nothing."""
_ROUNDING = 0.05  # of that factor: a warm-up is a whole number of updates


STAGES_BY_WARMUP = TableSchema(
    name="stages_by_warmup",
    version=1,
    description="How much later the divergence KL(Q||P) from an n-gram model reaches its minimum with a longer "
    "warm-up; "
    "the control is another seed with the same warm-up.",
    made_by="it needs two studies that differ in their warm-up alone, one four times as long, with a schedule in "
    "[checkpoints]: compare their folders, infoflow over-scale RUN RUN",
    columns=(
        *KEYS,
        Column(
            name="compared",
            dtype="string",
            unit="",
            description="warm-up: the same seed with a longer one; seed: the next seed, same warm-up",
        ),
        Column(name="other_seed", dtype="int64", unit="", description="seed of the training that it is compared with"),
        Column(name="warmup", dtype="int64", unit="updates", description="of the training"),
        Column(
            name="other_warmup", dtype="int64", unit="updates", description="of the training that it is compared with"
        ),
        Column(name="order", dtype="int64", unit="tokens", description="n: 1 unigram, 2 bigram, 3 trigram"),
        Column(
            name="measure",
            dtype="string",
            unit="",
            description="what grew: updates, or the sum of the learning rates, until the minimum",
        ),
        Column(
            name="value",
            dtype="float64",
            unit="doublings",
            description="log2 of how many times as many; NaN: no minimum inside the training",
        ),
        Column(
            name="gap",
            dtype="float64",
            unit="doublings",
            description="of updates, from either minimum to the farthest checkpoint beside it: no value is more exact",
        ),
        Column(
            name="replicates",
            dtype="list<float64>",
            unit="doublings",
            description="of the value, over draws of sentences",
        ),
    ),
)


def is_longer_warmup(short: int, long: int) -> bool:
    """Whether the second warm-up is four times the first (both in updates), up to rounding."""
    return short > 0 and abs(long / short / WARMUP_FACTOR - 1) <= _ROUNDING


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WarmedUp:
    """A study's table `ngram_agreement_over_training`, and the learning rates of its trainings."""

    name: str
    warmup: int  # updates
    rates: float  # sum over all updates
    agreement: pd.DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class _Minimum:
    """The minimum of one curve, estimate and replicates."""

    row: Mapping[Any, Any]  # of one of its checkpoints, for the keys
    updates: np.ndarray  # (1 + R) log2
    rates: np.ndarray  # (1 + R) log2 of the sum of learning rates
    gap: float  # doublings
    inside: bool  # not at the first or last checkpoint


def stages_by_warmup(short: WarmedUp, long: WarmedUp) -> pd.DataFrame:
    r"""The table `STAGES_BY_WARMUP` of two studies.

    $$ \log_2 \frac{t^*_{long}}{t^*_{short}}, \qquad \log_2 \frac{S_{long}(t^*_{long})}{S_{short}(t^*_{short})} $$

    with \(t^* = \arg\min_{t > 0} KL(Q_n \Vert P_t)\) over the checkpoints and \(S(t) = \sum_{s \le t} \eta_s\) of the
    learning rates. While the rate rises, \(S(t) = \eta_{max} t^2 / 2w\): four times the warm-up w and the same S mean
    twice as many updates.

    Raises:
        UserError: The second warm-up is not four times the first.
    """
    if not is_longer_warmup(short.warmup, long.warmup):
        raise UserError(
            f"The second warm-up must be {WARMUP_FACTOR} times the first. Got {short.warmup} updates in "
            f"{short.name} and {long.warmup} in {long.name}."
        )
    first, second = _minima(short), _minima(long)
    rows = []
    for (key, order, seed), own in first.items():
        others = {"warm-up": (second.get((key, order, seed)), seed, long.warmup)}
        seeds = sorted(one[2] for one in first if one[:2] == (key, order))
        following = seeds[(seeds.index(seed) + 1) % len(seeds)]
        if following != seed:
            others["seed"] = (first[key, order, following], following, short.warmup)
        for compared, (other, other_seed, warmup) in others.items():
            if other is not None:
                place = {"compared": compared, "other_seed": other_seed, "warmup": short.warmup, "other_warmup": warmup}
                rows += [{**place, "order": order, **row} for row in _compared(own, other)]
    return STAGES_BY_WARMUP.conform(pd.DataFrame(rows, columns=pd.Index(STAGES_BY_WARMUP.column_names)))


def _minima(run: WarmedUp) -> dict[tuple[tuple[str, ...], int, int], _Minimum]:
    """By recipe, order of the n-grams and seed."""
    frame = run.agreement
    frame = frame[(frame["measure"] == "kl_from_ngram") & (frame["context"] == "before") & (frame["update"] > 0)]
    recipe = ["objective", "variant", "architecture", "start"]
    found = {}
    for names, own in frame.groupby([*recipe, "order", "seed"], sort=True):
        *of_recipe, order, seed = cast("tuple[Any, ...]", names)
        found[tuple(map(str, of_recipe)), int(order), int(seed)] = _minimum(own.sort_values("update"), run.rates)
    return found


def _minimum(rows: pd.DataFrame, rates: float) -> _Minimum:
    """The minimum of one curve; rows are in order of updates."""
    draws = np.array([np.asarray(own, dtype=float) for own in rows["replicates"]])  # (update, R)
    places = np.concatenate([rows[["value"]].to_numpy(float), draws], axis=1).argmin(axis=0)
    updates = np.log2(rows["update"].to_numpy(float))
    sums = np.log2(rates * rows["lr_share"].to_numpy(float))
    place, last = int(places[0]), len(rows) - 1
    gap = max(updates[min(place + 1, last)] - updates[place], updates[place] - updates[max(place - 1, 0)])
    return _Minimum(rows.iloc[0].to_dict(), updates[places], sums[places], float(gap), 0 < place < last)


def _compared(own: _Minimum, other: _Minimum) -> Iterator[dict[str, Any]]:
    inside = own.inside and other.inside
    for measure, mine, theirs in (("updates", own.updates, other.updates), ("rates", own.rates, other.rates)):
        common = min(len(mine), len(theirs))
        grown = theirs[:common] - mine[:common]
        yield {
            **of_whole_course(own.row),
            "measure": measure,
            "value": grown[0] if inside else np.nan,
            "gap": max(own.gap, other.gap),
            "replicates": grown[1:].tolist(),
        }
