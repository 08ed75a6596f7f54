"""How far one number of each model lies beyond its control, and how much models differ in it."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from infoflow.heads import HEAD_PRUNING_CURVE

from .._curves import layers_of, samples_at
from .._samples import Estimate, Samples
from ._measures import CardMeasure


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """One number per line, as measured and beyond the control."""

    shown: dict[str, Estimate]  # series → the number itself
    beyond: dict[str, Estimate]  # minus the same number of the untrained model, or of the measure's own baseline
    control: float  # the largest absolute value of the control; NaN without one
    difference: Estimate | None  # between the two lines that differ most, beyond the control; None for a single line
    pair: tuple[str, str] | None

    @property
    def deciding(self) -> Estimate:
        """The estimate that the card rests on: the difference between lines, or a single line's own effect."""
        return self.difference or next(iter(self.beyond.values()))

    @property
    def clear(self) -> bool:
        """Whether the interval of the deciding estimate excludes zero."""
        return self.deciding.sign != 0

    @property
    def strength(self) -> float:
        r"""$|d| / h$: the effect divided by the half-width of its interval; 0 without an interval."""
        return strength(self.deciding)


def strength(estimate: Estimate) -> float:
    """Distance of an estimate from zero in half-widths of its interval; 0 without an interval."""
    half = (estimate.high - estimate.low) / 2
    if not estimate.has_interval:
        return 0.0
    return abs(estimate.value) / half if half > 0 else math.inf if estimate.value else 0.0


def effects(measure: CardMeasure, frame: pd.DataFrame, dull: Collection[str] = ()) -> Effects:
    """Compute the effects of every line in `frame`, the rows of `measured`.

    Models in `dull`, which have not learned their task, are compared only if fewer than two others exist.
    """
    trained = {str(key): contrast(measure, frame, str(key)) for key in dict.fromkeys(frame["series"])}
    trained = {key: own for key, own in trained.items() if own}
    controls = {key: _control(measure, frame, key, own) for key, own in trained.items()}
    beyond = {key: own - controls[key] if controls[key] else own for key, own in trained.items()}
    sizes = [abs(one.estimate().value) for one in controls.values() if one]
    learned = [key for key in beyond if key not in dull]
    pair = max(
        combinations(learned if len(learned) > 1 else beyond, 2),
        key=lambda two: strength(_differ(beyond, *two)),
        default=None,
    )
    return Effects(
        shown={key: own.estimate() for key, own in trained.items()},
        beyond={key: own.estimate() for key, own in beyond.items()},
        control=max((size for size in sizes if math.isfinite(size)), default=math.nan),
        difference=_differ(beyond, *pair) if pair else None,
        pair=pair,
    )


def _differ(beyond: dict[str, Samples], a: str, b: str) -> Estimate:
    """Difference of two lines, paired by shared seeds and by sentences."""
    return (beyond[a] - beyond[b]).estimate()


def contrast(measure: CardMeasure, frame: pd.DataFrame, key: str, trained: bool = True) -> Samples:
    """The number that summarises a line, per seed."""
    layers = layers_of(frame[frame["trained"] == trained], key)
    if not layers:
        return Samples.bare({})
    if measure.contrast == "middle":
        return samples_at(frame, key, layers[len(layers) // 2], trained)
    end = layers[-1] if measure.contrast == "ends" else reached(measure, layers)
    return samples_at(frame, key, end, trained) - samples_at(frame, key, layers[0], trained)


def reached(measure: CardMeasure, layers: list[int]) -> int:
    """End position of the contrast "reached": the last one within that share of the course."""
    limit = layers[0] + measure.reached * 100
    return max((layer for layer in layers if layer <= limit), default=layers[0])


def _control(measure: CardMeasure, frame: pd.DataFrame, key: str, own: Samples) -> Samples:
    """The same number of the untrained models, or of the measure's own baseline if there are none."""
    if measure.untrained and (untrained := contrast(measure, frame, key, trained=False)):
        return untrained if set(untrained.values) >= set(own.values) else Samples.bare({})
    if measure.table == HEAD_PRUNING_CURVE.name or "baseline" not in frame:
        return Samples.bare({})  # its baseline is a random order: a curve of its own
    based = contrast(measure, _baselines(frame), key)
    return based if set(based.values) >= set(own.values) else Samples.bare({})


def _baselines(frame: pd.DataFrame) -> pd.DataFrame:
    """The baselines as measured rows without error, so that all replicates are equal."""
    rows = frame.dropna(subset="baseline")
    flat = {"value": rows["baseline"], "low": rows["baseline"], "high": rows["baseline"]}
    if "replicates" in rows:
        pairs = zip(rows["baseline"], rows["replicates"], strict=True)
        same = [None if own is None else [float(base)] * len(own) for base, own in pairs]
        flat["replicates"] = pd.Series(same, index=rows.index, dtype=object)
    return rows.assign(**flat)
