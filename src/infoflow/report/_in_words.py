"""Numbers in words, and the sentence above a figure, which names its highest and lowest lines and any close ones."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import pandas as pd

from infoflow.results import Estimate as Estimate
from infoflow.results import Samples as Samples
from infoflow.results import seeds_of_pairs as seeds_of_pairs

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chosen(Generic[Key]):
    """The quantity that is largest on one half of the sentences, and the values of all quantities on the other half.

    The largest of many values is partly large by chance, so the text must not report the value that selected it.
    """

    key: Key
    first: float  # number that selected it
    at: dict[Key, Samples]

    @property
    def estimate(self) -> Estimate:
        return self.at[self.key].estimate()


def chosen(found: Mapping[Key, Samples], of: Callable[[float], float] = lambda value: value) -> Chosen[Key] | None:
    """The item whose number, or a function of it, is largest; None if none has a number."""
    halves = {key: samples.halves() for key, samples in found.items()}
    known = {key: of(both.first) for key, both in halves.items() if math.isfinite(both.first)}
    if not known:
        return None
    key = max(known, key=known.__getitem__)
    return Chosen(key=key, first=halves[key].first, at={one: both.second for one, both in halves.items()})


# Numbers in words: rounded to the precision of their interval, with a true minus sign.

_ROUNDING = 1e-9  # relative half-width, or percent, below which an interval is a point with rounding errors


def decimals(low: float, high: float, value: float = 1.0) -> int:
    """Decimals that keep one significant digit of the interval's half-width (two if that digit is 1).

    Without an interval, `value` gets three significant digits.
    """
    half = (high - low) / 2
    if not math.isfinite(half) or half <= _ROUNDING * abs(value):
        size = abs(value) if math.isfinite(value) and value else 1.0
        return min(max(2 - math.floor(math.log10(size)), 0), 4)
    exponent = math.floor(math.log10(half))
    leading = half / 10**exponent
    return min(max(-exponent + (1 if leading < 2 else 0), 0), 6)


def number(value: float, places: int | None = None) -> str:
    """`value` with that many decimals and thousands separators; "–" for a missing value.

    Without `places`: at most three significant digits, no trailing zeros.
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.{decimals(math.nan, math.nan, value) if places is None else places}f}"
    if places is None and "." in text:
        text = text.rstrip("0").rstrip(".")
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", "−")


def two_digits(value: float) -> str:
    """`value` to two significant digits, for values without an interval or rough sizes."""
    return number(float(f"{value:.2g}"))


def estimate_text(estimate: Estimate, unit: str = "") -> str:
    """The estimate as `1.33 nats (95% interval 1.28 to 1.37)`, or only the number if there is no interval."""
    places = decimals(estimate.low, estimate.high, estimate.value)
    text = number(estimate.value, places) + (f" {unit}" if unit else "")
    if not estimate.has_interval:
        return text
    return f"{text} ({number(estimate.low, places)} to {number(estimate.high, places)})"


def size_text(estimate: Estimate, unit: str = "") -> str:
    """Like `estimate_text`, but without signs, for a change whose verb gives the direction."""
    if estimate.value >= 0:
        return estimate_text(estimate, unit)
    return estimate_text(estimate.negated(), unit)


def inline_text(estimate: Estimate, unit: str = "") -> str:
    """The estimate as `−0.02 nats, −0.09 to 0.05`, for use inside brackets and lists."""
    return estimate_text(estimate, unit).replace(" (", ", ").removesuffix(")")


def difference_text(gap: Estimate, more: str, less: str, unit: str = "") -> str:
    """A difference as `0.20 nats (0.19 to 0.21) more`, or `less`; a note follows if the direction may be chance."""
    unclear = " (may be chance)" if gap.has_interval and not gap.sign else ""
    return f"{size_text(gap, unit)} {more if gap.value >= 0 else less}{unclear}"


def span_text(values: pd.Series, places: int | None = None) -> str:
    """The range of the values as `0.13 to 0.19`, or one number if both ends round to it."""
    low, high = number(float(values.min()), places), number(float(values.max()), places)
    return low if low == high else f"{low} to {high}"


def count_text(count: float) -> str:
    """The count as `92,397`, or as `3.0 million` from a million on."""
    if count is None or not math.isfinite(count):
        return "–"
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,.0f}"


def duration_text(seconds: float) -> str:
    """The duration as `12 s`, `8 min` or `1 h 12 min`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def counted(number: int, noun: str) -> str:
    """Count with its noun, such as "1 run", "2 runs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(items: list[str]) -> str:
    """The items as text: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


_NAMED = 3  # up to this number, candidates that do not clearly differ are named; more are counted


class Candidate(NamedTuple):
    """Something that a sentence may name, with its number."""

    name: str  # with its preposition, as it follows the number: "in causal LM", "for the token before"
    estimate: Estimate
    rank: float | None = None  # selection criterion, if it is not the number

    @classmethod
    def held_out(cls, name: str, samples: Samples) -> "Candidate":
        """One of many candidates, such as heads: one half of the sentences selects it, the other gives its number."""
        first, second = samples.halves()
        return cls(name, second.estimate(), first)


class Extreme(NamedTuple):
    """The largest or smallest candidate, and those whose intervals overlap its own."""

    candidate: Candidate
    alike: tuple[str, ...]
    of: int = 0  # number of candidates; 0 if few, or if another half of the sentences selected it
    least: bool = False

    def text(self, unit: str = "") -> str:
        """The extreme as `0.54 nats (0.49 to 0.59) in causal LM, not clearly different from that in masked LM`."""
        return f"{estimate_text(self.candidate.estimate, unit)} {self.candidate.name}{self.note}{self.choice}"

    def text_after(self, unit: str = "") -> str:
        """The extreme as `in causal LM, 0.54 nats (0.49 to 0.59), not clearly different from that in masked LM`."""
        return f"{self.candidate.name}, {estimate_text(self.candidate.estimate, unit)}{self.note}{self.choice}"

    @property
    def note(self) -> str:
        """A note such as `, not clearly different from that in masked LM`; "" if no other value is close."""
        if not self.alike:
            return ""
        if len(self.alike) <= _NAMED:
            return f", not clearly different from that {listed(list(self.alike))}"
        return f", not clearly different from {len(self.alike)} others"

    @property
    def choice(self) -> str:
        """A note, ` (the largest of 12, so partly by chance)`; "" for few candidates or if other sentences selected."""
        return f" (the {'smallest' if self.least else 'largest'} of {self.of}, so partly by chance)" if self.of else ""


def extreme(candidates: Sequence[Candidate], least: bool = False) -> Extreme | None:
    """The candidate with the largest (smallest) number; None if none has a number. Ties: the first wins."""
    known = [one for one in candidates if math.isfinite(one.estimate.value)]
    if not known:
        return None
    sign = -1 if least else 1
    best = max(known, key=lambda one: sign * (one.estimate.value if one.rank is None else one.rank))
    near = _ends(best.estimate)[1 if least else 0]
    alike = [
        one.name for one in known if one is not best and sign * _ends(one.estimate)[0 if least else 1] >= sign * near
    ]
    many = len(known) > _NAMED and best.rank is None
    return Extreme(best, tuple(alike), len(known) if many else 0, least)


def both_extremes(candidates: Sequence[Candidate], unit: str = "", most: str = "highest", least: str = "lowest") -> str:
    """A clause such as `highest in A, 0.61 (0.58 to 0.64); lowest in B, 0.42 (0.40 to 0.44)`; "" without numbers.

    If the two do not clearly differ, one number represents all.
    """
    top, bottom = extreme(candidates), extreme(candidates, least=True)
    if top is None or bottom is None:
        return ""
    if top.candidate is bottom.candidate:
        return top.text(unit)
    if bottom.candidate.name in top.alike:
        return (
            f"{estimate_text(top.candidate.estimate, unit)} {top.candidate.name}, with no clear difference from the "
            f"others{top.choice}"
        )
    if top.of:
        ends = f"{most} {top._replace(of=0).text_after(unit)}; {least} {bottom._replace(of=0).text_after(unit)}"
        return f"{ends} (extremes of {top.of}, so partly by chance)"
    return f"{most} {top.text_after(unit)}; {least} {bottom.text_after(unit)}"


def extremes_words(what: str, candidates: Sequence[Candidate], unit: str = "", end: str = "") -> str:
    """`The share is highest in A, 0.61 (0.58 to 0.64); lowest in B, 0.42 (0.40 to 0.44); chance is 0.5.`, a sentence.

    `what` is the quantity, `end` the end of the sentence, such as a control. A percent sign as the unit follows the
    number without a space.
    """
    stated = both_extremes(candidates, unit).replace(" %", "%")
    return sentence(f"{what} is {stated}{f'; {end}' if end else ''}") if stated else ""


def clear_cases(candidates: Sequence[Candidate], above: float = 0.0) -> str:
    """A clause such as `clearly above 0 in 3 of 4 cases`; "" for a single case, or if there are no intervals."""
    known = [one.estimate for one in candidates if one.estimate.has_interval]
    if len(known) < 2:
        return ""
    return f"clearly above {number(above)} in {sum(one.low > above for one in known)} of {len(known)} cases"


def percent_over_models(shares: Mapping[object, float], bounds: tuple[float, float] = (0.0, 100.0)) -> Estimate:
    """The mean percentage with its interval over seeds; only the mean if there is no interval or all are equal."""
    percent = {key: 100 * float(share) for key, share in shares.items()}
    estimate = Samples.bare(percent, bounds).estimate()
    return estimate if estimate.high - estimate.low > _ROUNDING else plain(estimate.value)


def percent_span(shares: Iterable[float]) -> str:
    """The shares as `47%`, or as `47% to 53%` if the known ones differ."""
    known = [100 * share for share in shares if math.isfinite(share)]
    ends = list(dict.fromkeys(f"{end:.0f}%" for end in (min(known), max(known)))) if known else []
    return " to ".join(ends)


ANY_PERCENT = (-math.inf, math.inf)
"""Bounds for parts of a sum whose terms have both signs."""


def plain(value: float) -> Estimate:
    """A number without an interval."""
    return Estimate(value=value, low=math.nan, high=math.nan, seeds=1, count=0)


def _ends(estimate: Estimate) -> tuple[float, float]:
    return (estimate.low, estimate.high) if estimate.has_interval else (estimate.value, estimate.value)


def by_answer(answers: Mapping[str, str], start: str = "") -> str:
    """Lines with the same answer in one clause: "in A and B it is …; in C …"."""
    groups: dict[str, list[str]] = {}
    for name, answer in answers.items():
        if answer:
            groups.setdefault(answer, []).append(name)
    clauses = [f"{answer} in {listed(names)}" for answer, names in groups.items()]
    return sentence(f"{start}{'; '.join(clauses)}") if clauses else ""


def sentence(text: str) -> str:
    """Add a capital letter and a full stop; "" stays empty."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def ends_words(curve: pd.Series, unit: str = "", places: int | None = None) -> str:
    """The first and the last value of a curve, as `from 9.1 to 4.2 nats`."""
    suffix = f" {unit}" if unit else ""
    return f"from {number(curve.iloc[0], places)} to {number(curve.iloc[-1], places)}{suffix}"


def half_by(curve: pd.Series) -> int:
    """The first update (of the index) at which a curve is halfway from its first to its last value."""
    past = _past(curve)
    return int(curve.index[int(past.to_numpy().argmax())])


def half_for_good(curve: pd.Series) -> int:
    """The first update from which a curve stays beyond the midpoint of its first and last value."""
    past = _past(curve)
    before = past.index[~past.to_numpy(dtype=bool)]
    return int(past.index[past.index.get_loc(before[-1]) + 1]) if len(before) else int(past.index[0])


def _past(curve: pd.Series) -> pd.Series:
    start, end = float(curve.iloc[0]), float(curve.iloc[-1])
    return (curve - (start + end) / 2) * (end - start) >= 0
