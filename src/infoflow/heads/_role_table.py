"""The roles of each head: every statistic's threshold applied, in one table."""

# M score, N bootstrap block (64), R replicate

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.foundation import block_interval, on_halves
from infoflow.results import Column, TableSchema

from ._attention_statistics import HEAD_POSITIONAL, OFFSET
from ._head_measure import HEAD_KEYS
from ._patterns import HEAD_PATTERNS, PATTERN, SCORE
from ._rare_token import HEAD_RARE_TOKEN, RAREST
from ._relations import CONVENTION, DIRECTION, HEAD_RELATIONS, RELATION
from ._surface import HEAD_SURFACE, STATISTIC

_SHOWN = ("value", "low", "high", "baseline", "count")

HEAD_ROLES = TableSchema(
    name="head_roles",
    version=2,
    description="Roles of heads: every score that defines a role, with the limit for holding it. Heads are "
    "chosen for a "
    "role on one half of the sentences and tested on the other.",
    columns=(
        *HEAD_KEYS,
        Column(name="role", dtype="string", unit="", description="positional, syntactic (by relation), rarest token…"),
        Column(
            name="holds",
            dtype="bool",
            unit="",
            description="chosen, and the lower end of the interval on the second half of the sentences exceeds the "
            "limit",
        ),
        Column(
            name="chosen",
            dtype="bool",
            unit="",
            description="whether the score on the first half of the sentences reaches the limit. Of the chosen scores "
            "that are truly no higher than the limit, at most 2.5 % hold by chance",
        ),
        Column(name="value", dtype="float64", unit="share", description="the score on all sentences"),
        Column(name="low", dtype="float64", unit="share", description="lower end of its 95% interval"),
        Column(name="high", dtype="float64", unit="share", description="upper end of its 95% interval"),
        Column(name="baseline", dtype="float64", unit="share", description="the score's control, see its own table"),
        Column(name="limit", dtype="float64", unit="share", description="what the score must exceed"),
        Column(name="count", dtype="int64", unit="occurrences", description="sample size of the value"),
        Column(name="held_out", dtype="float64", unit="share", description="the score on the second half"),
        Column(name="held_out_low", dtype="float64", unit="share", description="lower end of its 95% interval"),
        Column(name="held_out_high", dtype="float64", unit="share", description="upper end of its 95% interval"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Role:
    name: str  # with the table's key columns in braces
    table: str
    threshold: float
    where: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0  # above the baseline


_ROLES = (
    _Role(name=f"positional {{{OFFSET}:+d}}", table=HEAD_POSITIONAL.name, threshold=0.9),
    _Role(
        name=f"{{{RELATION}}} {{{DIRECTION}}}",
        table=HEAD_RELATIONS.name,
        where={CONVENTION: "voita"},
        threshold=0.0,
        margin=0.1,
    ),
    _Role(name="rarest token", table=HEAD_RARE_TOKEN.name, where={RAREST: 1}, threshold=0.5),
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
    _Role(name="copying", table=HEAD_PATTERNS.name, where={PATTERN: "copying", SCORE: "positive"}, threshold=0.9),
)


def head_roles(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every head's score for every role in the tables, and whether it has the role.

    | role | held from | source |
    |---|---|---|
    | positional ±n | 90 % of queries look there most | [@voita2019heads] |
    | a relation, in a direction | 10 points above its best fixed offset | [@voita2019heads] |
    | rarest token | half of the queries | [@voita2019heads] has 66 % and > 50 % |
    | SEP, punctuation, first token | 60 % of the attention | [@clark2019] |
    | induction, duplicate token | 40 % of the attention of the rows that have a target | [@nanda2022] |
    | copying | the logits of 90 % of the attended tokens rise | ours |

    A score must also exceed its baseline. Heads are chosen on one half of the sentences, and have a role if the 95%
    interval of their score on the other half lies above the limit (`by_chance` is the expected number by chance).

    Args:
        tables: Tables of one model by name, as `measure` returns them; any may be absent. Without the column replicates
            there are no halves: roles are tested on all sentences, and all scores count as chosen.

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

    Args:
        roles: `head_roles`, or some of its rows.
    """
    return FALSE_RATE * float(roles["chosen"].sum())


def _scores(role: _Role, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    rows = table.dropna(subset=["value"])
    for column, wanted in role.where.items():
        rows = rows[rows[column] == wanted]
    names = [role.name.format(**row) for row in rows.to_dict("records")]
    limit = np.maximum(role.threshold, rows["baseline"] + role.margin)
    frame = rows[[*HEAD_KEYS, *_SHOWN]].assign(role=names, limit=limit).join(chosen_and_held(rows, limit))
    for _, part in frame.groupby("role", sort=False):
        yield part.sort_values("value", ascending=False, kind="stable")


FALSE_RATE = 0.025
"""Share of heads below a threshold whose 95% interval lies above it by chance."""


def chosen_and_held(scores: pd.DataFrame, limit: pd.Series) -> pd.DataFrame:
    """Which scores reach a limit on half of the sentences, and whether they exceed it on the other half.

    The halves are those of `on_halves`. Scores are shares.

    Args:
        scores: Columns value, low, high, count and replicates, as from `ratio_estimate`.
        limit: The limit of each score.

    Returns:
        Columns chosen, held_out, held_out_low, held_out_high and holds. A score is `chosen` if it reaches the limit on
        the first half. It `holds` if also the lower end of its 95% interval on the second half exceeds the limit. Of
        the chosen scores that are truly no higher than their limits, at most `FALSE_RATE` hold.

    Without bootstrap replicates there are no halves. Then scores are tested on all sentences, and every score counts as
    chosen.
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
