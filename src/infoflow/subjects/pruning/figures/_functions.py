"""Head functions along a pruning sweep: who holds which, which are lost, and what chance would keep."""

from dataclasses import dataclass
from math import comb

import numpy as np
import pandas as pd

from infoflow.heads import by_chance
from infoflow.report.heads._names import KINDS, kind_label

from ..measures import ALL_HEADS
from ._rows import PrunableHeads

BEFORE = -1
"""The sweep step of the converged model."""

_HEAD = ["kind", "layer", "head"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Functions:
    """One model's sweep: its first seed's heads and functions, and counts over all seeds.

    `heads` has one row per sweep step, head and function (`holds`: by the role thresholds). `counts` has one row per
    seed and sweep step: the converged model's functions that are left, their initial number, and the number that
    equally many random heads would keep in expectation.
    """

    pool: PrunableHeads
    seed: int
    heads: pd.DataFrame
    counts: pd.DataFrame
    by_chance: float | None  # upper bound for the roles that the first seed held before pruning; None: not known

    @property
    def points(self) -> list[int]:
        """Sweep steps of the first seed, starting with the converged model."""
        return sorted({int(point) for point in self.heads["point"]})

    @property
    def kinds(self) -> list[str]:
        present = set(self.heads["kind"])
        return [name for name in KINDS.values() if name in present]

    def rows_of(self, kind: str) -> pd.DataFrame:
        return self.heads.loc[self.heads["kind"] == kind]

    def left(self, point: int) -> int:
        """Number of the first seed's remaining heads."""
        return len(self.heads.loc[(self.heads["point"] == point) & self.heads["alive"]].drop_duplicates(_HEAD))

    @property
    def size(self) -> int:
        return len(self.heads.drop_duplicates(_HEAD))

    def holders(self) -> pd.DataFrame:
        """Remaining holders of each function (rows) at each sweep step (columns), for functions that ever had one."""
        living = self.heads.assign(held=self.heads["holds"] & self.heads["alive"])
        table = living.pivot_table(index=["kind", "role"], columns="point", values="held", aggfunc="sum").astype(int)
        table = table.loc[table.max(axis=1) > 0]
        order = [self.kinds.index(kind) for kind in table.index.get_level_values("kind")]
        first = table[BEFORE] if BEFORE in table else table.iloc[:, 0]
        return table.iloc[np.lexsort((-first.to_numpy(), order))]

    def lost(self, point: int) -> list[str]:
        """Names of the converged model's functions that no remaining head holds."""
        table = self.holders()
        gone = table.index[(table[BEFORE] > 0) & (table[point] == 0)]
        return [role if len(self.kinds) == 1 else f"{role} in {kind}" for kind, role in gone]

    @property
    def telling(self) -> int:
        """The sweep step below half of the heads nearest to the published 17 of 48; otherwise the last step."""
        shares = {point: self.left(point) / self.size for point in self.points if point != BEFORE}
        few = {point: share for point, share in shares.items() if share < 0.5}
        return min(few, key=lambda point: abs(few[point] - 17 / 48)) if few else max(shares)


def functions(pool: PrunableHeads, frame: pd.DataFrame, way: str) -> Functions | None:
    """Read a pool's sweep from `pruned_roles`; None if no head held a function before it."""
    own = pool.of(frame)
    own = own.loc[own["way"] == way]
    if pool.scope != ALL_HEADS:  # the others could not be pruned
        own = own.loc[(own["stack"] + "-" + own["kind"]) == pool.scope]
    role = own["role"].astype(str).str.replace("-", "−")
    kind = [kind_label(s, k) for s, k in zip(own["stack"], own["kind"], strict=True)]
    own = own.assign(kind=kind, role=role, holds=own["present"].astype(bool), alive=own["alive"].astype(bool))
    if own.empty or not own.loc[own["point"] == BEFORE, "holds"].any() or set(own["point"]) == {BEFORE}:
        return None
    rows = [row for _, model in own.groupby(["seed", "draw"]) for row in _counts(model)]
    first = own.loc[own["seed"] == own["seed"].min()]
    return Functions(
        pool=pool,
        seed=int(first["seed"].iloc[0]),
        heads=first.loc[first["draw"] == first["draw"].min(), ["point", *_HEAD, "role", "holds", "alive"]],
        counts=pd.DataFrame(rows),
        by_chance=_by_chance(first.loc[first["point"] == BEFORE]),
    )


def _by_chance(before: pd.DataFrame) -> float | None:
    """Expected roles by chance; tables before version 2 do not say which roles were chosen."""
    return by_chance(before.drop_duplicates([*_HEAD, "role"])) if "chosen" in before else None


def _counts(model: pd.DataFrame) -> list[dict]:
    """One seed's functions left at each sweep step, and the number expected for random heads."""
    before = model.loc[(model["point"] == BEFORE) & model["holds"]]
    wanted = before.drop_duplicates(["kind", "role", "layer", "head"]).groupby(["kind", "role"]).size()
    rows = []
    for point, at in model.groupby("point"):
        if wanted.empty:
            continue
        heads = at.drop_duplicates(_HEAD)
        kept, num = int(heads["alive"].sum()), len(heads)
        living = at.loc[at["holds"] & at["alive"], ["kind", "role"]].itertuples(index=False, name=None)
        chances = [1 - comb(num - int(holders), kept) / comb(num, kept) for holders in wanted]
        rows.append(
            {
                "seed": int(model["seed"].iloc[0]),
                "draw": int(model["draw"].iloc[0]),
                "point": int(str(point)),
                "left": kept,
                "size": num,
                "functions": len(set(living) & set(wanted.index)),
                "before": len(wanted),
                "chance": float(np.mean(chances)),
            }
        )
    return rows
