"""Numbers on which a claim is plainly true, plainly refuted, or neither, found by search over what readings can give.

A form says what a reading gives: how many numbers, in which range, and which of them are fixed, such as counts. The
search knows nothing of what a claim says: it looks for numbers that meet its conditions, or that miss one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from infoflow.findings import Condition, Finding, judge_all, resampled_curves
from infoflow.results import Samples

LAYERS, COMPONENTS, BINS = 6, 7, 11
REPLICATES = 60
_SEEDS = {"retrieval:R-14": 40}  # it counts runs, and needs 35
_POPULATION, _GENERATIONS, _ENOUGH = 96, 50, 0.45


@dataclass(frozen=True)
class Form:
    """What a reading gives: `size` numbers from `low` to `high`, and in some columns always the same."""

    size: int = 1
    low: float = 0.0
    high: float = 1.0
    fixed: dict[int, float] = field(default_factory=dict)
    period: int = 0  # so many numbers belong to each layer, and may differ in all layers alike


def judged(
    finding: Finding, curves: dict[str, np.ndarray], noise: dict[str, np.ndarray], draw: int = 0, seeds: int = 5
) -> str:
    """The verdict on seeds whose numbers scatter around the curves, controls aside.

    The sentences move all seeds together, by half as much as seeds differ, and replicates tell by how much.
    """
    num = _SEEDS.get(finding.id, seeds)
    rng = np.random.default_rng(draw)
    estimates = {}
    for name, curve in curves.items():
        size = curve.shape[1]
        values = curve + noise[name] * (rng.standard_normal((num, size)) + rng.standard_normal(size) / 2)
        moves = noise[name] / 2 * rng.standard_normal((REPLICATES, size))
        rows = {(seed,): np.concatenate([own[None], own + moves]) for seed, own in enumerate(values)}
        estimates[name] = Samples.of_units(rows)
    curves_of_rows, rows = resampled_curves(estimates, list(range(num)))
    verdicts = [outcome.verdict for outcome in judge_all(finding.conditions(curves_of_rows), rows)]
    estimate = {name: rows[:1] for name, rows in curves_of_rows.items()}
    verdict = "fails" if "fails" in verdicts else "undetermined" if "undetermined" in verdicts else "holds"
    hindered = finding.hinders is not None and finding.hinders(estimate, verdict)
    return "not testable here" if hindered else verdict


class Search:
    """Looks for numbers that a claim's readings can give and that do to its conditions what is asked for."""

    def __init__(self, finding: Finding, forms: dict[str, Form], known: dict[str, np.ndarray] | None = None) -> None:
        """`known`: numbers that meet all conditions, where they are too rare to be found."""
        self.finding, self.forms, self._known = finding, forms, known
        self._rng = np.random.default_rng([ord(letter) for letter in finding.id])
        margins = self._margins(self._first())
        low, high = np.nanpercentile(np.where(np.isfinite(margins), margins, np.nan), [16, 84], axis=0)
        self._scale = (high - low) / 2 + 1e-12
        self.num_conditions = margins.shape[1]

    def true(self) -> dict[str, np.ndarray]:
        """Every condition is met by as much as can be."""
        if self._known is not None:
            return self._known
        return self._best(lambda margins: margins.min(axis=1), "holds")

    def without(self, number: int) -> dict[str, np.ndarray]:
        """One condition is missed by as much as can be, and of the others as many are met as can be."""

        def score(margins: np.ndarray) -> np.ndarray:
            others = np.delete(margins, number, axis=1)
            return np.minimum(-margins[:, number], 0.5) + 0.02 * np.minimum(others, 0).sum(axis=1)

        return self._best(score, "fails")

    def between(self, true: dict[str, np.ndarray], refuted: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Where on the way from one to the other the claim ceases to be met."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self._met(self._mixed(true, refuted, middle)) else (low, middle)
        return self._mixed(true, refuted, high)

    def margins(self, curves: dict[str, np.ndarray]) -> np.ndarray:
        """Of each condition how far it is met, in units of its spread over what the readings can give."""
        return self._margins(np.concatenate([curves[name] for name in self.forms], axis=1))[0] / self._scale

    def _best(self, score: Callable[[np.ndarray], np.ndarray], verdict: str) -> dict[str, np.ndarray]:
        population, spread = self._first(), 0.5
        if self._known is not None:
            population[0] = np.concatenate([self._known[name][0] for name in self.forms])
        best, reached = population[0], -np.inf
        for _ in range(_GENERATIONS):
            scores = self._scores(population, score, verdict)
            order = np.argsort(-scores)
            if scores[order[0]] > reached:
                best, reached = population[order[0]], scores[order[0]]
            if reached > _ENOUGH:
                break
            parents = np.concatenate([population[order[:20]], best[None]])
            population, spread = self._children(parents, spread), max(spread * 0.94, 0.03)
        return self._split(best[None])

    def _scores(self, rows: np.ndarray, score: Callable[[np.ndarray], np.ndarray], verdict: str) -> np.ndarray:
        margins = self._margins(rows) / self._scale
        known = np.isfinite(margins).all(axis=1)
        scores = np.full(len(rows), -np.inf)
        scores[known] = score(np.tanh(margins[known]))
        if hinders := self.finding.hinders:
            scores[known] -= [2.0 if hinders(self._split(row[None]), verdict) else 0.0 for row in rows[known]]
        return scores

    def _margins(self, rows: np.ndarray) -> np.ndarray:
        """How far each row meets each condition."""
        return np.stack([_margins_of(one) for one in self.finding.conditions(self._split(rows))], axis=1)

    def _met(self, curves: dict[str, np.ndarray]) -> bool:
        return all(one.met()[0] for one in self.finding.conditions(curves))

    def _mixed(self, one: dict, other: dict, share: float) -> dict[str, np.ndarray]:
        return {name: (1 - share) * one[name] + share * other[name] for name in one}

    def _split(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum([form.size for form in self.forms.values()])
        return dict(zip(self.forms, np.split(rows, ends[:-1], axis=1), strict=True))

    def _first(self) -> np.ndarray:
        """Smooth curves and rough ones, in any direction."""
        parts = []
        for form in self.forms.values():
            x = np.linspace(-1, 1, form.size) if form.size > 1 else np.zeros(1)
            level, slope, bend, rough = self._rng.standard_normal((4, _POPULATION, 1))
            shape = slope * x + bend * (x**2 - 0.5) + 0.3 * rough * self._rng.standard_normal((_POPULATION, form.size))
            if form.period:
                shape = shape + self._alike_in_layers(form)
            unit = 0.5 + 0.18 * (level + shape * self._rng.choice([0.3, 1.0, 3.0], (_POPULATION, 1)))
            parts.append(_within(form, form.low + (form.high - form.low) * unit))
        return np.concatenate(parts, axis=1)

    def _alike_in_layers(self, form: Form) -> np.ndarray:
        """A pattern or a slope within each layer, stronger, weaker or reversed from the first layer to the last."""
        inside = np.where(
            self._rng.random((_POPULATION, 1)) < 0.5,
            self._rng.standard_normal((_POPULATION, form.period)),
            self._rng.standard_normal((_POPULATION, 1)) * np.linspace(-2, 2, form.period),
        )
        layers = np.linspace(-1, 1, form.size // form.period)
        change, last = self._rng.standard_normal((2, _POPULATION, 1)) * self._rng.integers(0, 2, (2, _POPULATION, 1))
        strength = 1 + 0.5 * change * layers + 2 * last * (layers == 1)
        return (strength[:, :, None] * inside[:, None]).reshape(_POPULATION, form.size)

    def _children(self, parents: np.ndarray, spread: float) -> np.ndarray:
        chosen = parents[self._rng.integers(len(parents), size=_POPULATION)]
        moved, start = [], 0
        for form in self.forms.values():
            own = chosen[:, start : start + form.size]
            step = spread * (form.high - form.low) * self._rng.standard_normal(own.shape)
            step *= self._rng.random(own.shape) < max(0.2, 1 / form.size)
            tilt = spread * (form.high - form.low) * self._rng.standard_normal((_POPULATION, 1))
            line = np.linspace(-1, 1, form.size) if form.size > 1 else np.ones(1)
            moved.append(
                _within(form, own + step * 0.5 + tilt * line * (self._rng.random((_POPULATION, 1)) < 0.3) * 0.3)
            )
            start += form.size
        return np.concatenate([parents, np.concatenate(moved, axis=1)[len(parents) :]])


def noise_of(true: dict[str, np.ndarray], refuted: dict[str, np.ndarray], forms: dict[str, Form]) -> dict:
    """A two-hundredth of what lies between them, or of the range of what is alike in both; none of fixed numbers."""
    found = {}
    for name, form in forms.items():
        apart = np.abs(true[name] - refuted[name])
        scale = np.where(apart > 0, apart, 0.1 * np.ptp(true[name]))
        scale[:, list(form.fixed)] = 0.0
        found[name] = 0.005 * scale
    return found


def _within(form: Form, values: np.ndarray) -> np.ndarray:
    span = form.high - form.low
    clipped = np.clip(values, form.low + 1e-3 * span, form.high - 1e-3 * span)
    for column, number in form.fixed.items():
        clipped[:, column] = number
    return clipped


def _margins_of(condition: Condition) -> np.ndarray:
    return condition.oriented.min(axis=1) if condition.over == "all" else condition.oriented.max(axis=1)
