"""How far one number of each model lies beyond its control, and by how much models differ in it."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from .._curves import layers_of, samples_at
from .._samples import Estimate, Samples
from ._measures import CardMeasure


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """One number of each line, as measured and beyond the control."""

    shown: dict[str, Estimate]  # series → the number itself
    beyond: dict[str, Estimate]  # less the same number of the untrained model, or of the measure's own baseline
    control: float  # the largest size that the control reaches; NaN without one
    difference: Estimate | None  # between the two lines that differ most, beyond the control; None of a single line
    pair: tuple[str, str] | None

    @property
    def deciding(self) -> Estimate:
        """What the card stands on: the difference between lines, of a single line its own effect."""
        return self.difference or next(iter(self.beyond.values()))

    @property
    def clear(self) -> bool:
        """Whether the interval of what the card stands on leaves out zero."""
        return self.deciding.sign != 0

    @property
    def strength(self) -> float:
        r"""$|d| / h$: the effect against the half-width of its interval; 0 without an interval."""
        return strength(self.deciding)


def strength(estimate: Estimate) -> float:
    """How many half-widths of its interval an estimate lies from zero; 0 without an interval."""
    half = (estimate.high - estimate.low) / 2
    if not estimate.has_interval:
        return 0.0
    return abs(estimate.value) / half if half > 0 else math.inf if estimate.value else 0.0


def effects(measure: CardMeasure, frame: pd.DataFrame, dull: Collection[str] = ()) -> Effects:
    """The numbers of every line in `frame`, the rows of `measured`.

    Models of `dull`, which have not learned their task, are compared only where fewer than two others are there.
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
    """Seeds that both lines have are paired, as are sentences."""
    return (beyond[a] - beyond[b]).estimate()


def contrast(measure: CardMeasure, frame: pd.DataFrame, key: str, trained: bool = True) -> Samples:
    """The number by which a line is summed up, per seed."""
    layers = layers_of(frame[frame["trained"] == trained], key)
    if not layers:
        return Samples.bare({})
    if measure.contrast == "middle":
        return samples_at(frame, key, layers[len(layers) // 2], trained)
    end = layers[-1] if measure.contrast == "ends" else reached(measure, layers)
    return samples_at(frame, key, end, trained) - samples_at(frame, key, layers[0], trained)


def reached(measure: CardMeasure, layers: list[int]) -> int:
    """Where the contrast "reached" looks: the last place not beyond that part of the course."""
    limit = layers[0] + measure.reached * 100
    return max((layer for layer in layers if layer <= limit), default=layers[0])


def _control(measure: CardMeasure, frame: pd.DataFrame, key: str, own: Samples) -> Samples:
    """The same number of the untrained models; of a measure or a run without them, of the measure's own baseline."""
    if measure.untrained and (untrained := contrast(measure, frame, key, trained=False)):
        return untrained if set(untrained.values) >= set(own.values) else Samples.bare({})
    if measure.table == "head_pruning_curve" or "baseline" not in frame:
        return Samples.bare({})  # its baseline is a random order, a curve of its own
    based = contrast(measure, _baselines(frame), key)
    return based if set(based.values) >= set(own.values) else Samples.bare({})


def _baselines(frame: pd.DataFrame) -> pd.DataFrame:
    """The baselines as if they were measured: numbers without error, so each replicate is the same."""
    rows = frame.dropna(subset="baseline")
    flat = {"value": rows["baseline"], "low": rows["baseline"], "high": rows["baseline"]}
    if "replicates" in rows:
        pairs = zip(rows["baseline"], rows["replicates"], strict=True)
        same = [None if own is None else [float(base)] * len(own) for base, own in pairs]
        flat["replicates"] = pd.Series(same, index=rows.index, dtype=object)
    return rows.assign(**flat)
