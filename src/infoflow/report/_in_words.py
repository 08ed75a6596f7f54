"""The sentence above a figure's numbers: its highest and lowest lines, with those they do not clearly exceed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from ._numbers import estimate_text, listed, number
from ._samples import Estimate, Samples

_ROUNDING = 1e-9  # percent
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

    def told(self, unit: str = "") -> str:
        """`0.54 nats (0.49 to 0.59) in causal LM, not clearly apart from masked LM`."""
        return f"{estimate_text(self.candidate.estimate, unit)} {self.candidate.name}{self.note}{self.choice}"

    def told_after(self, unit: str = "") -> str:
        """`in causal LM, 0.54 nats (0.49 to 0.59), not clearly apart from that in masked LM`."""
        return f"{self.candidate.name}, {estimate_text(self.candidate.estimate, unit)}{self.note}{self.choice}"

    @property
    def note(self) -> str:
        """`, not clearly apart from that in masked LM`; "" if no other is close."""
        if not self.alike:
            return ""
        if len(self.alike) <= _NAMED:
            return f", not clearly apart from that {listed(list(self.alike))}"
        return f", not clearly apart from {len(self.alike)} others"

    @property
    def choice(self) -> str:
        """`, the largest of 12 and so partly by chance`; "" for few, or if other sentences selected it."""
        return (
            f", the {'smallest' if self.least else 'largest'} of {self.of} and so partly by chance" if self.of else ""
        )


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
    """`highest in A, 0.61 (0.58 to 0.64); lowest in B, 0.42 (0.40 to 0.44)`; "" without numbers.

    If the two do not clearly differ, one number represents all.
    """
    top, bottom = extreme(candidates), extreme(candidates, least=True)
    if top is None or bottom is None:
        return ""
    if top.candidate is bottom.candidate:
        return top.told(unit)
    if bottom.candidate.name in top.alike:
        return (
            f"{estimate_text(top.candidate.estimate, unit)} {top.candidate.name}, with no clear difference elsewhere"
            f"{top.choice}"
        )
    if top.of:
        ends = f"{most} {top._replace(of=0).told_after(unit)}; {least} {bottom._replace(of=0).told_after(unit)}"
        return f"{ends}, extremes of {top.of} and so partly by chance"
    return f"{most} {top.told_after(unit)}; {least} {bottom.told_after(unit)}"


def extremes_words(what: str, candidates: Sequence[Candidate], unit: str = "", end: str = "") -> str:
    """`The share is highest in A, 0.61 (0.58 to 0.64); lowest in B, 0.42 (0.40 to 0.44); chance is 0.5.`, a sentence.

    Args:
        what: The quantity.
        candidates: Items with their numbers.
        unit: Unit of the number; a percent sign follows it without a space.
        end: The end of the sentence, such as a control.
    """
    told = both_extremes(candidates, unit).replace(" %", "%")
    return sentence(f"{what} is {told}{f'; {end}' if end else ''}") if told else ""


def clear_cases(candidates: Sequence[Candidate], above: float = 0.0) -> str:
    """`clearly above 0 in 3 of 4 cases`; "" for a single case, or without intervals."""
    known = [one.estimate for one in candidates if one.estimate.has_interval]
    if len(known) < 2:
        return ""
    return f"clearly above {number(above)} in {sum(one.low > above for one in known)} of {len(known)} cases"


def percent_over_models(shares: Mapping[object, float], bounds: tuple[float, float] = (0.0, 100.0)) -> Estimate:
    """The mean percentage with its interval over seeds; the bare mean without an interval, or if all are equal."""
    percent = {key: 100 * float(share) for key, share in shares.items()}
    estimate = Samples.bare(percent, bounds).estimate()
    return estimate if estimate.high - estimate.low > _ROUNDING else plain(estimate.value)


def percent_span(shares: Iterable[float]) -> str:
    """`47%`, or `47% to 53%` if the known shares differ."""
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


def most_and_least(rows: pd.DataFrame, what: str, most: str = "most", least: str = "least") -> str:
    """The lines with the largest and smallest values; "" with fewer than two lines.

    A line joins an extreme if their intervals overlap; if the extremes' intervals overlap, no line is clearly
    different.

    Args:
        rows: One per line: name, value, low, high; without an interval only the value counts.
        what: Start of the sentence.
        most: Word for the largest.
        least: Word for the smallest.
    """
    rows = rows.dropna(subset="value")
    if len(rows) < 2:
        return ""
    low, high = rows["low"].fillna(rows["value"]), rows["high"].fillna(rows["value"])
    top, bottom = rows["value"].argmax(), rows["value"].argmin()
    least_of_top, most_of_bottom = float(low.iloc[top]), float(high.iloc[bottom])
    if least_of_top <= most_of_bottom:
        return f"{what} in no line clearly more than in another"
    tops = rows.loc[high >= least_of_top, "name"].tolist()
    bottoms = rows.loc[(low <= most_of_bottom) & ~rows["name"].isin(tops), "name"].tolist()
    return f"{what} {most} in {listed(tops)}, {least} in {listed(bottoms)}"


def by_answer(answers: Mapping[str, str], start: str = "") -> str:
    """Lines with the same answer in one clause: "in A and B it is …; in C …"."""
    groups: dict[str, list[str]] = {}
    for name, answer in answers.items():
        if answer:
            groups.setdefault(answer, []).append(name)
    clauses = [f"{answer} in {listed(names)}" for answer, names in groups.items()]
    return sentence(f"{start}{'; '.join(clauses)}") if clauses else ""


def sentence(text: str) -> str:
    """Add a capital and a full stop; "" stays empty."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""
