"""Roles of heads, by thresholds on their statistics, and when heads gain and lose roles in training."""

# M score, N bootstrap block (64), R replicate

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from infoflow.foundation import UserError, block_interval, on_halves
from infoflow.results import Column, TableSchema

from ._attention_statistics import HEAD_POSITIONAL, HEAD_RARE_TOKEN, OFFSET, RAREST
from ._head_measure import HEAD_KEYS
from ._patterns import HEAD_PATTERNS, PATTERN, SCORE
from ._relations import CONVENTION, DIRECTION, HEAD_RELATIONS, RELATION
from ._retrieval_heads import HEAD_RETRIEVAL
from ._surface import HEAD_SURFACE, STATISTIC

_ENDS = 3  # points at either end of a curve
_EQUAL = 1e-12  # a value this close below a level has reached it, up to rounding


class Crossing(float):
    """The update at which a curve reaches a level, interpolated in log2 t between the checkpoints `before` and `after`.

    NaN if the curve never reaches the level.
    """

    before: float
    after: float

    def __new__(cls, time: float, before: float, after: float) -> "Crossing":
        crossing = super().__new__(cls, time)
        crossing.before, crossing.after = before, after
        return crossing

    def __repr__(self) -> str:
        return f"{float(self):.4g} ({self.before:g}, {self.after:g}]"

    def __reduce__(self) -> tuple:
        return Crossing, (float(self), self.before, self.after)


def last_crossing(steps: np.ndarray, values: np.ndarray, level: float) -> Crossing:
    """The last crossing of `level` from below. A crossing right after step 0 gets the next checkpoint's time."""
    reached = values >= level - _EQUAL
    upward = np.flatnonzero(~reached[:-1] & reached[1:])
    if len(upward) == 0:
        return Crossing(math.nan, math.nan, math.nan)
    at = int(upward[-1])
    before, after = float(steps[at]), float(steps[at + 1])
    if before == 0:
        return Crossing(after, before, after)
    share = min((level - values[at]) / (values[at + 1] - values[at]), 1.0)
    return Crossing(2 ** (math.log2(before) + share * math.log2(after / before)), before, after)


def checked_curve(steps: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, ...]:
    """Steps and values as float64 arrays."""
    times, curve = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or times.shape != curve.shape or len(times) == 0:
        raise UserError(f"A curve needs one value for each step. Got shapes {times.shape} and {curve.shape}.")
    if times[0] < 0 or (np.diff(times) <= 0).any():
        raise UserError(f"The steps of a curve must be ascending and at least 0. Got {times[:20].tolist()}. Sort them.")
    return times, curve


def is_finished(curve: ArrayLike, errors: ArrayLike) -> bool:
    """Whether a curve over training has settled.

    It has settled if the distance of each of the last three values to their mean is below a tenth of the whole change,
    or below two standard errors.
    """
    values = np.asarray(curve, dtype=np.float64)
    sigmas = np.broadcast_to(np.asarray(errors, dtype=np.float64), values.shape)
    end = values[-_ENDS:].mean()
    change = abs(end - values[:_ENDS].mean())
    return bool((np.abs(values[-_ENDS:] - end) <= np.maximum(0.1 * change, 2 * sigmas[-_ENDS:])).all())


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleEvent:
    """The birth or death of a role, at some update in (before, after]."""

    before: int
    after: int
    open: bool = False  # seen only at the last checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleEvents:
    """Events of one head and one role."""

    initial: bool | None  # held before training; None without step 0
    births: tuple[RoleEvent, ...]
    deaths: tuple[RoleEvent, ...]
    flickers: int  # changes of state that were not events


def role_events(steps: ArrayLike, held: ArrayLike) -> RoleEvents:
    """Births and deaths of a head's role.

    A birth is the first of two consecutive checkpoints with the role, a death the first of two without it. At the last
    checkpoint one is enough, and the event is `open`.

    >>> role_events([0, 1, 2, 4, 8, 16], [0, 1, 0, 0, 1, 1]).births
    (RoleEvent(before=4, after=8, open=False),)
    """
    times, _ = checked_curve(steps, np.asarray(held, dtype=np.float64))
    states = np.asarray(held, dtype=bool)
    now = bool(states[0])
    events: dict[bool, list[RoleEvent]] = {True: [], False: []}
    last = len(states) - 1
    for at in range(1, len(states)):
        new = bool(states[at])
        if new != now and (at == last or bool(states[at + 1]) == new):
            before, after = int(times[at - 1]), int(times[at])
            events[new].append(RoleEvent(before=before, after=after, open=at == last))
            now = new
    changes = int((states[1:] != states[:-1]).sum())
    num_events = len(events[True]) + len(events[False])
    return RoleEvents(
        initial=bool(states[0]) if times[0] == 0 else None,
        births=tuple(events[True]),
        deaths=tuple(events[False]),
        flickers=changes - num_events,
    )


def expected_jaccard(heads: int, a: int, b: int) -> float:
    r"""Expected \(|A \cap B| / |A \cup B|\) of random sets of `a` and `b` out of `heads` heads; NaN if both are empty.

    $$ \sum_k \frac{k}{a + b - k} \mathrm{hypergeom}(k; H, a, b) $$

    >>> round(expected_jaccard(48, 6, 6), 4)
    0.072
    """
    from scipy.stats import hypergeom  # slow to import

    if not (0 <= a <= heads and 0 <= b <= heads):
        raise UserError(f"Sets of heads have from 0 to {heads} members. Got {a} and {b}.")
    if a + b == 0:
        return float("nan")
    common = np.arange(max(0, a + b - heads), min(a, b) + 1)
    return float((common / (a + b - common) * hypergeom.pmf(common, heads, a, b)).sum())


_SHOWN = ("value", "low", "high", "baseline", "count")

HEAD_ROLES = TableSchema(
    name="head_roles",
    version=2,
    description="Roles of heads: every score that defines a role, with the limit for holding it. Heads are "
    "chosen for a role on one half of the sentences and tested on the other.",
    columns=(
        *HEAD_KEYS,
        Column("role", "string", "", "positional, syntactic (by relation), rarest token…"),
        Column(
            "holds",
            "bool",
            "",
            "chosen, and the lower end of the interval on the second half of the sentences exceeds the limit",
        ),
        Column(
            "chosen",
            "bool",
            "",
            "whether the score on the first half of the sentences reaches the limit. Of the chosen scores "
            "that are truly no higher than the limit, at most 2.5 % hold by chance",
        ),
        Column("value", "float64", "share", "the score on all sentences"),
        Column("low", "float64", "share", "lower end of the value's 95% interval"),
        Column("high", "float64", "share", "upper end of the value's 95% interval"),
        Column("baseline", "float64", "share", "the score's control, see its own table"),
        Column("limit", "float64", "share", "what the score must exceed"),
        Column("count", "int64", "occurrences", "sample size of the value"),
        Column("held_out", "float64", "share", "the score on the second half"),
        Column("held_out_low", "float64", "share", "lower end of the 95% interval of held_out"),
        Column("held_out_high", "float64", "share", "upper end of the 95% interval of held_out"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Role:
    name: str  # may contain names of the table's key columns in braces
    table: str
    threshold: float
    where: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0  # above the baseline
    function: str = ""  # one of `FUNCTIONS`


FUNCTIONS = ("positional", "syntactic", "rare token")
"""The functions of heads in Voita et al. (2019); all other roles belong to none of them."""

_POSITIONAL = _Role(
    name=f"positional {{{OFFSET}:+d}}", table=HEAD_POSITIONAL.name, threshold=0.9, function="positional"
)
_RELATION = _Role(
    name=f"{{{RELATION}}} {{{DIRECTION}}}",
    table=HEAD_RELATIONS.name,
    where={CONVENTION: "voita"},
    threshold=0.0,
    margin=0.1,
    function="syntactic",
)
_ROLES = (
    _POSITIONAL,
    _RELATION,
    _Role(name="rarest token", table=HEAD_RARE_TOKEN.name, where={RAREST: 1}, threshold=0.5, function="rare token"),
    _Role(name="first token", table=HEAD_SURFACE.name, where={STATISTIC: "first"}, threshold=0.6),
    _Role(name="SEP", table=HEAD_SURFACE.name, where={STATISTIC: "sep"}, threshold=0.6),
    _Role(name="punctuation", table=HEAD_SURFACE.name, where={STATISTIC: "punctuation"}, threshold=0.6),
    _Role(name="induction", table=HEAD_PATTERNS.name, where={PATTERN: "prefix", SCORE: "all"}, threshold=0.4),
    _Role(
        name="duplicate token",
        table=HEAD_PATTERNS.name,
        where={PATTERN: "duplicate", SCORE: "valid rows"},
        threshold=0.4,
    ),
    _Role(name="retrieval", table=HEAD_RETRIEVAL.name, threshold=0.1),
    _Role(name="copying", table=HEAD_PATTERNS.name, where={PATTERN: "copying", SCORE: "positive"}, threshold=0.9),
)


def head_roles(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The score of every head for every role in the tables, and whether the head has the role.

    | role | minimum | source |
    |---|---|---|
    | positional ±n | 90 % of queries attend most to this offset | [@voita2019heads] |
    | a relation, in a direction | 10 points above its best fixed offset | [@voita2019heads] |
    | rarest token | half of the queries | [@voita2019heads] report 66 % and > 50 % |
    | SEP, punctuation, first token | 60 % of the attention | [@clark2019] |
    | induction, duplicate token | 40 % of the attention of the rows that have a target | [@nanda2022] |
    | retrieval | 10 % of the needle's tokens | [@wu2024retrieval] |
    | copying | the logits of 90 % of the attended tokens rise | ours |

    A score must also exceed its baseline. Heads are chosen on one half of the sentences, and have a role if the 95%
    interval of their score on the other half lies above the limit (`by_chance` bounds how many do so by chance).

    Args:
        tables: Tables of one model by name, as `measure` returns them; any may be absent. Without the column
            `replicates` roles are tested on all sentences, not on halves, and all scores count as chosen.

    Returns:
        The columns of the table `head_roles`, by role, best head first.
    """
    parts = [part for role in _ROLES if role.table in tables for part in _scores(role, tables[role.table])]
    if not parts:
        return HEAD_ROLES.conform(pd.DataFrame(columns=HEAD_ROLES.column_names))
    return HEAD_ROLES.conform(pd.concat(parts, ignore_index=True))


def by_chance(roles: pd.DataFrame) -> float:
    """Upper bound on the expected number of roles held by chance: 2.5 % of those chosen on the first half.

    The bound is reached if every chosen head's true score equals its limit; lower scores give fewer.
    """
    return FALSE_RATE * float(roles["chosen"].sum())


def role_function(role: str) -> str:
    """The function that a role belongs to, one of `FUNCTIONS`; "" for roles without one.

    >>> role_function("positional -1"), role_function("nsubj dependent→head"), role_function("SEP")
    ('positional', 'syntactic', '')
    """
    return _named(role).function


def role_strength(role: str, score: float, baseline: float) -> float:
    r"""Where a head's score lies between its control (0) and the limit of the role (1).

    $$ \mathrm{strength} = \mathrm{clip}\left(\frac{s - b}{l - b}, 0, 1\right) $$

    with the score $s$, its control $b$ and the limit $l$ of `head_roles`; 0 if a score is unknown.

    >>> role_strength("rarest token", score=0.35, baseline=0.2)
    0.5
    """
    own = _named(role)
    way = max(own.threshold, baseline + own.margin) - baseline
    share = (score - baseline) / way if way > 0 else float(score > baseline)
    return round(min(max(share, 0.0), 1.0), 4) if share == share else 0.0


def _named(name: str) -> _Role:
    own = next((role for role in _ROLES if role.name == name), None)
    return own or (_POSITIONAL if name.startswith("positional") else _RELATION)


def _scores(role: _Role, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    rows = table.dropna(subset=["value"])
    for column, wanted in role.where.items():
        rows = rows[rows[column] == wanted]
    names = [role.name.format(**row) for row in rows.to_dict("records")]
    limit = np.maximum(role.threshold, rows["baseline"] + role.margin)
    frame = rows[[*HEAD_KEYS, *_SHOWN]].assign(role=names, limit=limit).join(chosen_and_held(rows, limit))
    for _, part in frame.groupby("role", sort=False):
        yield part.sort_values("value", ascending=False, kind="stable")


FALSE_RATE = 0.025  # share of heads below a threshold whose 95% interval lies above it by chance


def chosen_and_held(scores: pd.DataFrame, limit: pd.Series) -> pd.DataFrame:
    """Which scores reach a limit on one half of the sentences, and whether they exceed it on the other half.

    The halves are those of `on_halves`. Scores are shares.

    Returns:
        Columns chosen, held_out, held_out_low, held_out_high and holds. A score is `chosen` if it reaches the limit on
        the first half. It `holds` if the lower end of its 95% interval on the second half also exceeds the limit. Of
        the chosen scores that are truly no higher than their limits, at most `FALSE_RATE` hold.

    Without bootstrap replicates scores are tested on all sentences, not on halves, and every score counts as chosen.
    """
    values = scores["value"].to_numpy(dtype=float)
    replicates = scores["replicates"].tolist() if "replicates" in scores else [()] * len(scores)
    first, second, effects_MN = on_halves(values, replicates)
    second = np.clip(second, 0, 1)
    ends = [
        _interval(value, effects, count / 2)
        for value, effects, count in zip(second, effects_MN, scores["count"], strict=True)
    ]
    low, high = np.array(ends).reshape(-1, 2).T
    unknown = np.isnan(first)
    second, low, high = (
        np.where(unknown, scores[name].to_numpy(dtype=float), half)
        for name, half in (("value", second), ("low", low), ("high", high))
    )
    chosen = unknown | (first >= limit.to_numpy(dtype=float))
    return pd.DataFrame(
        {
            "chosen": chosen,
            "held_out": second,
            "held_out_low": low,
            "held_out_high": high,
            "holds": chosen & (low > limit.to_numpy(dtype=float)),
        },
        index=scores.index,
    )


def _interval(value: float, effects: Float[np.ndarray, " block"], count: float) -> tuple[float, float]:
    units = int(np.count_nonzero(effects))
    return block_interval(value, effects, units=units or None, scale="share", count=count)
