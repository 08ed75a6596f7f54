"""Checks of the path that weights take through training: K3 to K5, K10 and the norms of K12; and their rows."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from infoflow.foundation import UserError
from infoflow.results import Column, TableSchema
from infoflow.training import NOT_THE_SAME

from ._places import StoredFile
from ._series import Missing
from ._weighing import Weight

Level = Literal["note", "warning", "error"]

CHECKPOINT_CHECKS = TableSchema(
    name="checkpoint_checks",
    description="Anomalies of the checkpoints of a training. A checkpoint with an error is left out of the "
    "other tables unless requested.",
    over_training=True,
    columns=(
        Column("name", "string", "", "name of the checkpoint: its folder or revision"),
        Column(
            "check",
            "string",
            "",
            "K1 equal weights, K2 equal shards, K3 far from both neighbours, K4 nearer to the start than the "
            "preceding one, K5 not descended from step 0, K6 loss far from the decreasing fit, K7 non-finite or only "
            "equal numbers, K8 another configuration or tokenizer, K9 missing or unexpected tensors, K10 precision, "
            "K11 a step other than the one in its name, K12 missing, or norms that jump",
        ),
        Column("level", "string", "", "note, warning or error"),
        Column("value", "float64", "as the check", "measured value; NaN: no number"),
        Column("limit", "float64", "as the check", "limit from which the value is an anomaly; NaN: none"),
        Column("other_step", "int64", "updates", "update of the other checkpoint that the message is about; -1: none"),
        Column("message", "string", "", "for people"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRow:
    """One problem of one checkpoint."""

    name: str
    update: int
    check: str
    level: Level
    message: str
    value: float = math.nan
    limit: float = math.nan
    other_step: int = NOT_THE_SAME


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WeighedCheckpoint:
    """A checkpoint as input of the checks; arrays shared by a series must not be changed."""

    name: str
    update: int
    progress: float = math.nan
    named: int | None = None  # step in its name
    saved_at: int | None = None  # step recorded by its training
    by_hand: bool = False
    files: tuple[StoredFile, ...] = ()
    weight: Weight | None = None  # None: its files cannot be read
    fault: str = ""  # why its files or their content do not form a model
    sketch: Float[np.ndarray, " drawn"] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    loss: float = math.nan  # on the same sentences at each checkpoint, nats per token
    loss_error: float = math.nan  # its standard error


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SeriesChecks:
    """Results of all checks of a series."""

    rows: tuple[CheckRow, ...]
    same_as: dict[str, int]  # by checkpoint, the update of an earlier one with the same weights

    @property
    def suspects(self) -> tuple[str, ...]:
        """Names of checkpoints with an error."""
        return tuple(dict.fromkeys(row.name for row in self.rows if row.level == "error"))


def row(one: WeighedCheckpoint | Missing, check: str, level: Level, message: str, value: float = math.nan,
        limit: float = math.nan, other: WeighedCheckpoint | None = None) -> CheckRow:  # fmt: skip
    return CheckRow(
        name=one.name,
        update=one.update,
        check=check,
        level=level,
        message=message,
        value=value,
        limit=limit,
        other_step=NOT_THE_SAME if other is None else other.update,
    )


def in_order(series: Sequence[WeighedCheckpoint]) -> list[WeighedCheckpoint]:
    return sorted(series, key=lambda one: (one.update, one.name))


def without(series: Sequence[WeighedCheckpoint], rows: Sequence[CheckRow]) -> list[WeighedCheckpoint]:
    """Checkpoints without a reported error."""
    bad = {row.name for row in rows if row.level == "error"}
    return [one for one in series if one.name not in bad]


# Checks of the path that weights take through training: K3 to K5, K10 and the norms of K12.

FAR, OFF = 3.0, 2.0  # for K3: r was 1.05 to 1.41 in a clean run, 8.0 for another seed's weights, 3.6 for the last
_FALL = 0.02  # limit of K4
_EARLY, _COSINE, _APART = 0.01, 0.5, 0.99  # limits of K5
_JUMP = 1.5  # limit of K12
_ROUNDING = {"bfloat16": 1.66e-3, "float16": 2.1e-4}  # relative change of the norm by rounding, measured


def alike(series: Sequence[WeighedCheckpoint]) -> list[WeighedCheckpoint]:
    """Checkpoints whose matrices have the most frequent shapes; distances are defined only between these."""
    layouts = {one.name: _layout(one) for one in series if one.weight is not None and not one.weight.tensors.not_finite}
    if not layouts:
        return []
    usual = Counter(layouts.values()).most_common(1)[0][0]
    return [one for one in series if layouts.get(one.name) == usual]


def ratio(before: WeighedCheckpoint, one: WeighedCheckpoint, after: WeighedCheckpoint) -> float:
    """How far a checkpoint lies from the path between its neighbours (`triangle_ratios`); NaN if all are equal."""
    return float(triangle_ratios(np.stack([before.sketch, one.sketch, after.sketch]))[0])


def outliers(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K3: the checkpoint farthest from both neighbours, then further checkpoints with that one left out."""
    rows, live = [], alike(series)
    while len(live) > 2:
        ratios = _ratios(live)
        worst = int(np.nanargmax(ratios)) if not np.isnan(ratios).all() else 0
        if np.isnan(ratios).all() or ratios[worst] <= FAR:
            break
        one = live.pop(worst + 1)
        text = f"{one.name} lies far from both neighbours (r = {ratios[worst]:.1f}): another run?"
        rows.append(row(one, "K3", "error", text, value=ratios[worst], limit=FAR, other=live[worst]))
    for index, found in enumerate(_ratios(live)):
        if found > OFF:
            one = live[index + 1]
            text = f"{one.name} lies off the path between its neighbours (r = {found:.1f})"
            rows.append(row(one, "K3", "note", text, value=float(found), limit=OFF, other=live[index]))
    return rows


def path_checks(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K4, K5, K10 and K12 for the series without outliers."""
    live = alike(series)
    start = live[0] if live and live[0].update == 0 else None
    from_start = [] if start is None else [*_falls(start, live[1:]), *_strangers(start, live[1:])]
    return [*from_start, *_precision(live), *_jumps(live)]


def _layout(one: WeighedCheckpoint) -> tuple:
    assert one.weight is not None
    shapes = one.weight.tensors.shapes
    return tuple((name, tuple(shapes[name])) for name in sorted(shapes) if len(shapes[name]) > 1)


def _ratios(live: Sequence[WeighedCheckpoint]) -> np.ndarray:
    return np.array([ratio(*live[index - 1 : index + 2]) for index in range(1, len(live) - 1)])


def _distance(a: WeighedCheckpoint, b: WeighedCheckpoint) -> float:
    return float(np.linalg.norm(a.sketch.astype(np.float64) - b.sketch))


def _norm(one: WeighedCheckpoint) -> float:
    return float(np.linalg.norm(one.sketch.astype(np.float64)))


def _falls(start: WeighedCheckpoint, later: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K4: two checkpoints with swapped weights; strong weight decay can look the same."""
    distances = [_distance(start, one) for one in later]
    rows = []
    for before, one, d_before, d in zip(later, later[1:], distances, distances[1:], strict=False):
        if d_before > 0 and d < (1 - _FALL) * d_before:
            text = f"{one.name} is nearer to the start than {before.name}: swapped?"
            rows.append(row(one, "K4", "warning", text, value=1 - d / d_before, limit=_FALL, other=before))
    return rows


def _strangers(start: WeighedCheckpoint, later: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K5: checkpoints that do not descend from step 0; if no checkpoint does, step 0 itself is the outlier."""
    norm, found = _norm(start), {}
    for index, one in enumerate(later):
        own, product = _norm(one), float(start.sketch.astype(np.float64) @ one.sketch.astype(np.float64))
        apart = _distance(start, one) / np.hypot(norm, own) if norm or own else 0.0
        cosine = product / (norm * own) if norm and own else 1.0
        if apart > _APART:
            found[one.name] = (one, float(apart), _APART)
        elif index == 0 and one.progress < _EARLY and cosine < _COSINE:
            found[one.name] = (one, cosine, _COSINE)
    if later and len(found) == len(later) > 1:
        first, value, limit = found[later[0].name]
        text = f"{first.name} and all after it do not descend from {start.name}: of another run?"
        return [row(start, "K5", "error", text, value=value, limit=limit, other=first)]
    return [
        row(one, "K5", "error", f"{one.name} does not descend from {start.name}", value=value, limit=limit, other=start)
        for one, value, limit in found.values()
    ]


def _precision(live: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K10: weights stored in another precision than most, or changed by less than rounding changes them."""
    dtypes = {one.name: one.weight.dtype for one in live if one.weight}
    if not dtypes:
        return []
    usual = Counter(dtypes.values()).most_common(1)[0][0]
    rows = [
        row(one, "K10", "warning", f"{one.name} is stored in {dtypes[one.name]}, most others in {usual}")
        for one in live
        if dtypes[one.name] != usual
    ]
    for before, one in itertools.pairwise(live):
        floor = max(_ROUNDING.get(dtypes[each.name], 0.0) for each in (before, one))
        moved = _distance(before, one) / (_norm(one) or 1.0)
        if 0 < moved < floor:
            text = f"{one.name} lies {moved:.1e} of its norm from {before.name}; rounding alone moves it {floor:.1e}"
            rows.append(row(one, "K10", "warning", text, value=moved, limit=floor, other=before))
    return rows


def _jumps(live: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K12: matrices whose norm changes by a factor of `_JUMP` or more while the number of updates less than doubles."""
    rows = []
    for before, one in itertools.pairwise(live):
        if one.update >= 2 * before.update:
            continue
        assert before.weight is not None
        assert one.weight is not None
        old, new = before.weight.tensors.norms, one.weight.tensors.norms
        factors = {
            name: max(new[name] / old[name], old[name] / new[name]) for name in new if old.get(name) and new[name]
        }
        jumped = {name: factor for name, factor in factors.items() if factor >= _JUMP}
        if jumped:
            worst = max(jumped, key=lambda name: jumped[name])
            more = f" and {len(jumped) - 1} more" if len(jumped) > 1 else ""
            text = (
                f"the norm of {worst}{more} changes by a factor of {jumped[worst]:.2f} from {before.name} to {one.name}"
            )
            rows.append(row(one, "K12", "note", text, value=jumped[worst], limit=_JUMP, other=before))
    return rows


def triangle_ratios(points: ArrayLike) -> Float[np.ndarray, " inner"]:
    r"""\(r_i = (d_{i-1,i} + d_{i,i+1}) / d_{i-1,i+1}\) for every checkpoint between two others.

    1 on a straight path, \(\sqrt 2\) if equal steps are orthogonal, 2 for noise around one point; a checkpoint of
    another run has 8 (measured: causal LM, 3 layers, width 64). Infinite if only the neighbours are equal, NaN if all
    three are equal.

    Args:
        points: (checkpoint, weight), at least three, in order.

    >>> triangle_ratios([(0, 0), (3, 4), (6, 0), (9, 4)]).round(3).tolist()
    [1.667, 1.667]
    """
    weights = np.asarray(points, dtype=np.float64)
    if weights.ndim != 2 or len(weights) < 3:
        raise UserError(f"Ratios of triangles need at least three checkpoints of weights. Got shape {weights.shape}.")
    steps = np.linalg.norm(np.diff(weights, axis=0), axis=1)
    across = np.linalg.norm(weights[2:] - weights[:-2], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (steps[:-1] + steps[1:]) / across
