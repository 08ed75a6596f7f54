"""Classifies a slope over scale: grows, flat, falls or undetermined."""

from dataclasses import dataclass
from typing import Literal

from ._scale_slope import ScaleSlope

Trend = Literal["grows", "flat", "falls", "undetermined"]

FLAT = 0.1
"""Maximum change of a flat effect per tenfold scale, as a share of the distance from threshold to published value.

From a million tokens, where small studies begin, to the hundred thousand million of large models there are five
decades. An effect that changes by less than a tenth of the distance in each would not cover half of it over the whole
range: a claim at its threshold would not reach the published value, nor one at the published value its threshold.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleTrend:
    """The word, its sentence, and the largest distance from zero of a flat slope's interval."""

    word: Trend
    told: str  # the word with its direction
    flat_within: float
    reason: str = ""  # why it is undetermined


def scale_trend(
    slope: ScaleSlope, *, effect: float, threshold: float, above: bool, published: float = float("nan")
) -> ScaleTrend:
    """What a slope means for a claim.

    - *flat*: the whole interval lies within `FLAT` times the distance from the threshold to the published value, or,
      if the source gives none, to the effect;
    - *grows*, *falls*: it does not, and the whole interval lies on the side of zero in which the claim holds, or on the
      other side;
    - *undetermined*: neither, or one step from a scale to the next clearly goes against the slope.

    Args:
        slope: Slope of the effect over log10 of the scale.
        effect: Mean over the scales.
        threshold: Value that the effect must pass.
        above: Whether the claim says that the effect lies above it.
        published: The source's value; NaN: none.
    """
    known = published == published
    within = FLAT * abs((published if known else effect) - threshold)
    if slope.value != slope.value:
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason="too few scales")
    if slope.low != slope.low:
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason="one seed")
    if -within < slope.low and slope.high < within:
        return ScaleTrend(word="flat", told="flat", flat_within=within)
    if slope.low <= 0 <= slope.high:
        reason = "the interval of the slope includes zero, and reaches beyond what counts as flat"
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason=reason)
    if slope.turns:
        reason = f"no one direction: {slope.turns} it clearly moves the other way"
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason=reason)
    word: Trend = "grows" if (slope.value > 0) == above else "falls"
    beyond = known and ((effect > published) == above) and effect != published
    return ScaleTrend(word=word, told=_told(word, known, beyond), flat_within=within)


def _told(word: Trend, known: bool, beyond: bool) -> str:
    if not known:
        return "grows the way the claim says" if word == "grows" else "falls against what the claim says"
    if beyond:
        return "grows beyond the published value" if word == "grows" else "falls back towards the published value"
    return "grows towards the published value" if word == "grows" else "falls away from the published value"
