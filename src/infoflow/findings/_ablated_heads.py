"""What claims read of ablated heads: single heads, the only head left in a layer, and curves of many heads."""

# K points of a curve, R replicates

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from infoflow.results import Spec

from ._model_group import Absent
from ._panel import Panel
from ._reading import Number, Objective, Tables, chosen, replicates_of, require_rows

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Shares of the heads removed, at which claims read a curve."""
MATTERS = 0.01
"""Nats per token: a change of the loss by which perplexity moves one per cent."""

_ABLATION, _CURVE = "head_ablation", "head_pruning_curve"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadChanges:
    """Change of the loss by each head of one stack and kind, layer by layer: ablated alone, or all others of its layer
    ablated."""

    objective: Objective
    stack: str
    kind: str
    removed: str = "head"
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (_ABLATION,)

    def panel(self, tables: Tables) -> Panel:
        frame = self._frame(tables)
        return _stacked(frame, ["layer", "head"], self.number, _ABLATION)

    def _frame(self, tables: Tables) -> pd.DataFrame:
        where = {"stack": self.stack, "kind": self.kind, "removed": self.removed, "mode": "zero", "metric": "loss"}
        columns = ["objective", "seed", "trained", "layer", "head", "value", self.number, *where]
        frame = tables.rows(_ABLATION, Spec(self.objective), columns, trained=self.trained)
        frame = chosen(frame, where)
        require_rows(frame, tables.table(_ABLATION), _ABLATION, self.objective, self.trained, where)
        return frame


@dataclass(frozen=True, kw_only=True, slots=True)
class MatteringShare:
    """Share of the ablations that change the loss by more than `MATTERS`, up or down: one number for each seed.

    Counted seed by seed, since heads do not correspond between seeds.
    """

    changes: HeadChanges

    @property
    def sources(self) -> tuple[str, ...]:
        return self.changes.sources

    @property
    def trained(self) -> bool:
        return self.changes.trained

    def panel(self, tables: Tables) -> Panel:
        panel = self.changes.panel(tables)
        values_U1, replicates_UR1 = (
            (np.abs(numbers) > MATTERS).mean(axis=-1, keepdims=True)
            for numbers in (panel.values_UK, panel.replicates_URK)
        )
        return replace(panel, layers=(0,), values_UK=values_U1, replicates_URK=replicates_UR1)


@dataclass(frozen=True, kw_only=True, slots=True)
class BestHeadLeft:
    """Change of the loss when each layer keeps the one head that does best alone; of the baseline, a random head.

    The best head is chosen by the estimate, seed by seed, and followed through the replicates.
    """

    objective: Objective
    stack: str
    kind: str
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (_ABLATION,)

    def panel(self, tables: Tables) -> Panel:
        changes = HeadChanges(
            objective=self.objective,
            stack=self.stack,
            kind=self.kind,
            removed="others",
            trained=self.trained,
            number=self.number,
        )
        frame = changes._frame(tables)
        best = frame.loc[frame.groupby(["seed", "layer"])["value"].idxmin()]
        return _stacked(best, ["layer"], self.number, _ABLATION)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovalCurve:
    """The loss with the shares `SHARES` of the heads ablated in one order; of random orders their mean, or one draw."""

    objective: Objective
    order: str
    kind: str = "all"
    draw: int | None = None
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (_CURVE,)

    def panel(self, tables: Tables) -> Panel:
        where = {"order": self.order, "kind": self.kind, "mode": "zero", "metric": "loss"}
        where |= {} if self.draw is None else {"draw": self.draw}
        columns = ["seed", "trained", "removed", "draw", self.number, *where]
        frame = tables.rows(_CURVE, Spec(self.objective), columns, trained=self.trained)
        frame = chosen(frame, where)
        frame = frame[np.isclose(frame["removed"].to_numpy()[:, None], SHARES, atol=1e-6).any(axis=1)]
        require_rows(frame, tables.table(_CURVE), _CURVE, self.objective, self.trained, where)
        draws = [_stacked(part, ["removed"], self.number, _CURVE) for _, part in frame.groupby("draw")]
        if any(len(one.layers) != len(SHARES) or one.units != draws[0].units for one in draws):
            raise Absent(f"{_CURVE} lacks one of the shares {', '.join(map(str, SHARES))}")
        return Panel(
            units=draws[0].units,
            layers=(0,),
            values_UK=np.mean([one.values_UK for one in draws], axis=0),
            replicates_URK=np.mean([one.replicates_URK for one in draws], axis=0),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedNumber:
    """Numbers of each seed that a table holds, in the order of one column; one number without it."""

    table: str
    objective: Objective
    by: str | None = None
    order: str | None = None
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        keys = [key for key in (self.by,) if key]
        needed = [*keys, "order"] if self.order else keys
        columns = ["seed", "trained", self.number, *needed]
        frame = tables.rows(self.table, Spec(self.objective), columns, trained=self.trained)
        frame = frame[frame["order"] == self.order] if self.order else frame
        frame = frame[frame["kind"] == "all"] if "kind" in frame.columns else frame
        require_rows(frame, tables.table(self.table), self.table, self.objective, self.trained)
        return _stacked(frame, keys, self.number, self.table)


def _stacked(frame: pd.DataFrame, keys: list[str], number: Number, table: str) -> Panel:
    """One row of K numbers for each seed, in the order of `keys`."""
    frame = frame.sort_values(["seed", *keys])
    groups = [group for _, group in frame.groupby("seed")]
    points = {tuple(group[keys].itertuples(index=False, name=None)) if keys else (0,) * len(group) for group in groups}
    if len(points) > 1 or len(next(iter(points))) != len(set(next(iter(points)))):
        raise Absent(f"{table} holds different rows for different seeds, or one of them twice")
    values_UK = np.stack([group[number].to_numpy(dtype=float) for group in groups])
    if not np.isfinite(values_UK).all():
        raise Absent(f"{table} lacks numbers ({number})")
    replicates = replicates_of(frame) if number == "value" else np.empty((len(frame), 0))
    return Panel(
        units=tuple((int(group["seed"].iloc[0]),) for group in groups),
        layers=tuple(range(values_UK.shape[1])),
        values_UK=values_UK,
        replicates_URK=replicates.reshape(*values_UK.shape, -1).transpose(0, 2, 1),
    )
