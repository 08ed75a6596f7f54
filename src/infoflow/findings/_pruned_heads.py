"""What claims read of the heads that pruning leaves: of which kind, in which layers, with which functions, how decided.

These numbers have no bootstrap over sentences: their replicates repeat them, so that intervals come from seeds alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
import pandas as pd

from infoflow.foundation import NUM_REPLICATES
from infoflow.results import Spec

from ._model_group import Absent
from ._panel import Panel
from ._pruned_quality import ALL, GATES, of_method, stacked
from ._reading import Objective, Tables, require_rows

KINDS = ("encoder-self", "decoder-self", "decoder-cross")
PUBLISHED_LEFT = 17 / 48
"""Share of the encoder's heads that the paper left in the model whose functions it counted."""

_HEADS, _ROLES, _CURVE = "pruned_heads", "pruned_roles", "pruning"
_HEAD = ["stack", "kind", "layer", "head"]
_POINT = ["objective", "seed", "method", "draw", "point"]
_CONVERGED = -1  # the point before the sweep, in the table of roles


@dataclass(frozen=True, kw_only=True, slots=True)
class AliveByKind:
    """Mean share of the heads that are alive, over the points of a sweep that left some heads but not all.

    One number for each of `KINDS`, then the lower half of the layers less the upper half for the decoder's
    self-attention, and the upper less the lower for cross-attention (the middle layer of an odd number in neither; NaN
    with one layer). `uniform`: what removing the same share of every kind and layer would leave.
    """

    objective: Objective
    method: str = GATES + ALL
    uniform: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        return (_HEADS,)

    def panel(self, tables: Tables) -> Panel:
        rows = _rows(tables, _HEADS, [*_HEAD, "alive"], self.objective)
        rows = of_method(rows, self.method, self.objective)
        rows = rows.assign(alive=rows["alive"].astype(float), kind=rows["stack"] + "-" + rows["kind"])
        left = rows.groupby(["seed", "draw", "point"])["alive"].transform("mean")
        rows = rows[(left > 0) & (left < 1)]
        if rows.empty:
            raise Absent(f"no point of the sweep {self.method} left some heads but not all")
        if missing := [kind for kind in KINDS if kind not in set(rows["kind"])]:
            raise Absent(f"{_HEADS} has no heads of {', '.join(missing)} in the sweep {self.method}")
        return _of_seeds({seed: self._numbers(own) for seed, own in rows.groupby("seed")})

    def _numbers(self, rows: pd.DataFrame) -> np.ndarray:
        if self.uniform:
            return np.array([rows["alive"].mean()] * len(KINDS) + [0.0, 0.0])
        own = {kind: rows[rows["kind"] == kind] for kind in KINDS}
        shares = [own[kind]["alive"].mean() for kind in KINDS]
        return np.array([*shares, -_rise(own["decoder-self"]), _rise(own["decoder-cross"])])


@dataclass(frozen=True, kw_only=True, slots=True)
class SurvivingRoles:
    """Share of the functions of the encoder's heads that some living head still has, where under half of them are left.

    Of the points of a sweep with fewer than half of the heads left the one nearest to `PUBLISHED_LEFT`. A function is a
    role of the table `head_roles`, which some head of the converged model holds. `kept="random"`: expected share for as
    many heads drawn at random from the converged model, exactly: 1 − C(n − m, k) / C(n, k) for a function that m of n
    heads hold, k of them drawn.
    """

    objective: Objective
    method: str = GATES
    kept: Literal["sweep", "random"] = "sweep"

    @property
    def sources(self) -> tuple[str, ...]:
        return (_ROLES,)

    def panel(self, tables: Tables) -> Panel:
        rows = _rows(tables, _ROLES, [*_HEAD, "role", "present", "alive"], self.objective)
        rows = rows[(rows["stack"] == "encoder") & (rows["kind"] == "self")]
        before = rows[rows["point"] == _CONVERGED]
        if before.empty:
            raise Absent(f"{_ROLES} has no roles of the converged model (point {_CONVERGED})")
        sweep = of_method(rows[rows["point"] != _CONVERGED], self.method, self.objective)
        found = {}
        for (seed, _), own in sweep.groupby(["seed", "draw"]):  # type: ignore[misc]
            number = self._share(before[before["seed"] == seed], own)
            found.setdefault(seed, []).extend([] if number is None else [number])
        if not any(found.values()):
            raise Absent("no head of the converged models held a function, or none of the sweeps was told of")
        return _of_seeds({seed: np.array([np.mean(draws)]) for seed, draws in found.items() if draws})

    def _share(self, before: pd.DataFrame, sweep: pd.DataFrame) -> float | None:
        """Of one seed and draw; None where the converged model has no function."""
        holders = before[before["present"]].drop_duplicates([*_HEAD, "role"]).groupby("role").size()
        if holders.empty:
            return None
        heads = sweep.drop_duplicates(["point", *_HEAD])
        left = heads.groupby("point")["alive"].mean()
        few = left[left < 0.5]
        if few.empty:
            raise Absent(f"no point of the sweep {self.method} left fewer than half of the encoder's heads")
        point = (few - PUBLISHED_LEFT).abs().idxmin()
        at = sweep[sweep["point"] == point]
        if self.kept == "random":
            alive = heads[heads["point"] == point]["alive"]
            num, kept = len(alive), int(alive.sum())
            return float(np.mean([1 - comb(num - int(m), kept) / comb(num, kept) for m in holders]))
        there = set(at[at["present"].astype(bool) & at["alive"].astype(bool)]["role"])
        return float(np.mean([role in there for role in holders.index]))


@dataclass(frozen=True, kw_only=True, slots=True)
class UndecidedGates:
    """Share of the gates that are neither 0 nor 1 in evaluation, at one end of the sweep of penalties.

    `at="largest"` penalty, or at a penalty of 0. Gates on the encoder's heads where they were learned, else on all.
    """

    objective: Objective
    at: Literal["largest", "zero"] = "largest"

    @property
    def sources(self) -> tuple[str, ...]:
        return (_CURVE, _HEADS)

    def panel(self, tables: Tables) -> Panel:
        curve = _rows(tables, _CURVE, ["setting", "undecided"], self.objective)
        heads = _rows(tables, _HEADS, ["log_alpha"], self.objective).dropna(subset="log_alpha")
        method = GATES if GATES in set(curve["method"]) else GATES + ALL
        curve = of_method(curve, method, self.objective).drop_duplicates(_POINT)
        gates = heads.groupby(_POINT).size().rename("gates").reset_index()
        rows = curve.merge(gates, on=_POINT)
        if rows.empty:
            raise Absent(f"{_HEADS} has no gates of the sweep {method}")
        return _of_seeds({seed: np.array([np.mean(list(self._draws(own)))]) for seed, own in rows.groupby("seed")})

    def _draws(self, rows: pd.DataFrame) -> Iterator[float]:
        for _, draw in rows.groupby("draw"):
            end = draw.loc[draw["setting"].idxmax() if self.at == "largest" else draw["setting"].idxmin()]
            if self.at == "zero" and end["setting"] > 0:
                begins = f"the sweep begins at a penalty of {end['setting']:g}"
                raise Absent(f"{begins}: let the plan's penalties begin at 0")
            yield float(end["undecided"] / end["gates"])


def _rows(tables: Tables, name: str, columns: list[str], objective: Objective) -> pd.DataFrame:
    rows = tables.rows(name, Spec(objective), [*_POINT, *columns])
    require_rows(rows, tables.table(name), name, objective, True)
    return rows


def _rise(rows: pd.DataFrame) -> float:
    """Alive share of the upper half of the layers less that of the lower half."""
    layers = sorted(set(rows["layer"]))
    half = len(layers) // 2
    if not half:
        return float("nan")
    low, high = (rows[rows["layer"].isin(part)]["alive"].mean() for part in (layers[:half], layers[-half:]))
    return float(high - low)


def _of_seeds(values: dict) -> Panel:
    return stacked({seed: np.tile(row, (1 + NUM_REPLICATES, 1)) for seed, row in values.items()})
