"""Which roles each head holds: every statistic's threshold applied, in one table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import Column, TableSchema

from ._head_measure import HEAD_KEYS

_SHOWN = ("value", "low", "high", "baseline", "count")
_HEAD = [column.name for column in HEAD_KEYS]

HEAD_ROLES = TableSchema(
    name="head_roles",
    version=1,
    description="Roles of heads: every score that a role is defined by, with what it takes to hold the role.",
    columns=(
        *HEAD_KEYS,
        Column(name="role", dtype="string", unit="", description="positional, syntactic (by relation), rarest token…"),
        Column(name="holds", dtype="bool", unit="", description="whether the value reaches the limit"),
        Column(name="value", dtype="float64", unit="share", description="the score"),
        Column(name="low", dtype="float64", unit="share", description="lower end of its 95% interval"),
        Column(name="high", dtype="float64", unit="share", description="upper end of its 95% interval"),
        Column(name="baseline", dtype="float64", unit="share", description="the score's control, see its own table"),
        Column(name="limit", dtype="float64", unit="share", description="what the value must reach"),
        Column(name="count", dtype="int64", unit="occurrences", description="sample size of the value"),
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
    _Role(name="positional {offset:+d}", table="head_positional", threshold=0.9),
    _Role(
        name="{relation} {direction}",
        table="head_relations",
        where={"convention": "voita"},
        threshold=0.0,
        margin=0.1,
    ),
    _Role(name="rarest token", table="head_rare_token", where={"rarest": 1}, threshold=0.5),
    _Role(name="first token", table="head_surface", where={"statistic": "first"}, threshold=0.6),
    _Role(name="SEP", table="head_surface", where={"statistic": "sep"}, threshold=0.6),
    _Role(name="punctuation", table="head_surface", where={"statistic": "punctuation"}, threshold=0.6),
    _Role(name="induction", table="head_patterns", where={"pattern": "prefix", "score": "all"}, threshold=0.4),
    _Role(
        name="duplicate token",
        table="head_patterns",
        where={"pattern": "duplicate", "score": "valid rows"},
        threshold=0.4,
    ),
    _Role(name="copying", table="head_patterns", where={"pattern": "copying", "score": "positive"}, threshold=0.9),
)


def head_roles(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every head's score for every role that the tables can tell of, and whether it holds the role.

    | role | held from | source |
    |---|---|---|
    | positional ±n | 90 % of queries look there most | [@voita2019heads] |
    | a relation, in a direction | 10 points above its best fixed offset | [@voita2019heads] |
    | rarest token | half of the queries, and above shuffled ranks | [@voita2019heads] has 66 % and > 50 % |
    | SEP, punctuation, first token | 60 % of the attention | [@clark2019] |
    | induction, duplicate token | 40 % of the attention of the rows that have a target | [@nanda2022] |
    | copying | the logits of 90 % of the attended tokens rise | ours |

    A value must also exceed its baseline.

    Args:
        tables: Tables of one model by name, as `measure` returns them; any may be absent.

    Returns:
        The columns of the table `head_roles`, by role, best head first.
    """
    parts = [part for role in _ROLES if role.table in tables for part in _scores(role, tables[role.table])]
    if not parts:
        return HEAD_ROLES.conform(pd.DataFrame(columns=HEAD_ROLES.column_names))
    return HEAD_ROLES.conform(pd.concat(parts, ignore_index=True))


def syntactic_heads(
    relations: pd.DataFrame, margin: float = 0.1, relative: bool = False, convention: str = "voita"
) -> pd.DataFrame:
    """The rows of `head_relations` whose head exceeds the relation's baseline by `margin`.

    Args:
        relations: The table `head_relations`.
        margin: Percentage points as a fraction (0.1 = ten points); with `relative`, a fraction of the baseline: the
            paper's "ten per cent" can be read in both ways.
        relative: Which of the two.
        convention: "voita" or "clark".

    Raises:
        UserError: The margin is negative.

    Source: [@voita2019heads].
    """
    if margin < 0:
        raise UserError(f"margin must be at least 0, a fraction. Got {margin}.")
    rows = relations[relations["convention"] == convention]
    limit = rows["baseline"] * (1 + margin) if relative else rows["baseline"] + margin
    return rows[rows["value"] >= limit]


def _scores(role: _Role, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    rows = table.dropna(subset=["value"])
    for column, wanted in role.where.items():
        rows = rows[rows[column] == wanted]
    names = [role.name.format(**row) for row in rows.to_dict("records")]
    limit = np.maximum(role.threshold, rows["baseline"] + role.margin)
    holds = (rows["value"] >= limit) & (rows["value"] > rows["baseline"])
    frame = rows[[*_HEAD, *_SHOWN]].assign(role=names, limit=limit, holds=holds)
    for _, part in frame.groupby("role", sort=False):
        yield part.sort_values("value", ascending=False, kind="stable")
