"""What the claims about alignment read: a score of an encoder of one kind, seed by seed."""

from dataclasses import dataclass, replace

import numpy as np

from infoflow.results import Spec

from ._finding import Curves
from ._model_group import Absent
from ._panel import Panel
from ._reading import Reading, Tables, chosen, replicates_of

TABLE = "alignment"


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentScore:
    """One score on held-out words: a curve of one point."""

    kind: str
    metric: str
    states: str  # "mapped" or "encoder"

    @property
    def sources(self) -> tuple[str, ...]:
        return (TABLE,)

    def panel(self, tables: Tables) -> Panel:
        where = {"kind": self.kind, "metric": self.metric, "states": self.states}
        frame = chosen(tables.rows(TABLE, Spec("masked-lm"), ["seed", "value", *where]), where).sort_values("seed")
        if frame.empty:
            raise Absent(f"the table {TABLE} has no {self.metric} of kind {self.kind}")
        values = frame["value"].to_numpy(dtype=float)[:, None]
        if not np.isfinite(values).all():
            raise Absent(f"the {self.metric} of kind {self.kind} is not defined")
        return Panel(
            units=tuple((int(seed),) for seed in frame["seed"]),
            layers=(0,),
            values_UK=values,
            replicates_URK=replicates_of(frame)[:, :, None],
        )


def pair(metric: str, states: str) -> dict[str, Reading]:
    """The score of the aligned encoder and of the one it began as, under `{metric}, aligned` and `…, unaligned`."""
    return {
        f"{metric}, {kind}": AlignmentScore(kind=kind, metric=metric, states=states)
        for kind in ("aligned", "unaligned")
    }


def in_place_of_aligned(reads: dict[str, Reading], kind: str) -> dict[str, Reading]:
    """The same readings with an encoder that was trained otherwise where the aligned one was."""
    return {
        name: replace(reading, kind=kind)  # type: ignore[type-var]
        if isinstance(reading, AlignmentScore) and reading.kind == "aligned"
        else reading
        for name, reading in reads.items()
    }


def gain(curves: Curves, metric: str) -> np.ndarray:
    """How much larger the aligned encoder's score is, (N, 1)."""
    return curves[f"{metric}, aligned"] - curves[f"{metric}, unaligned"]
