"""Numbers on which a claim is plainly true, plainly refuted, or neither, found by search over what readings can give.

A form says what a reading gives: how many numbers, in which range, and which of them are fixed, such as counts. The
search knows nothing of what a claim says: it looks for numbers that meet its conditions, or that miss one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from infoflow.findings import FINDINGS, Condition, Finding, judge_all, resampled_curves
from infoflow.results import Samples

LAYERS, COMPONENTS, BINS = 6, 7, 11
REPLICATES = 60
_SEEDS = {"retrieval:R-14": 40}  # it counts runs, and needs 35
TESTED = [name for name, one in FINDINGS.items() if isinstance(one, Finding)]
MORE_SEEDS = {"time:T7": 4}  # it counts seeds, and three cannot show a share
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


Pair, Signed = partial(Form, 2), partial(Form, low=-1.0)
Nats = partial(Form, low=0.1, high=6.0)


def reached(size: int, reaches: int, low: float = -6.0, high: float = 6.0, **fixed: float) -> Form:
    """Numbers with the reach of some behind them: none."""
    more = {int(column[1:]): number for column, number in fixed.items()}
    return Form(
        size + 2 * reaches + len(more), low, high, {**more, **{size + len(more) + at: 0.0 for at in range(2 * reaches)}}
    )


PROFILE = Form(LAYERS * COMPONENTS, -0.1, 0.3, period=COMPONENTS)
# What readings give that are neither one share nor a curve of them; a name alone is for all readings of the claim.
FORMS: dict[str, Form | dict[str, Form]] = {
    **dict.fromkeys(("representations:V-1", "representations:V-2", "representations:V-3"), Nats(LAYERS + 1)),
    **dict.fromkeys(("representations:V-4", "representations:V-5"), Nats(LAYERS + 1)),
    "representations:V-9": Form(5, 0.02, 0.2),
    "representations:V-10": Form(5 * BINS, 0.01, 0.2, period=BINS),
    "representations:V-11": Form(LAYERS * BINS, 0.0005, 0.02, period=BINS),
    "representations:V-12": Form(LAYERS * BINS, 0.0005, 0.02, period=BINS),
    "representations:V-14": Form(LAYERS, 0.0, 9.0),
    **dict.fromkeys(("representations:Z-5", "representations:Z-6"), Signed(LAYERS + 1)),
    **{f"adaptation:A-{number}": Pair() for number in (2, 3, 4, 7, 9, 10)},
    "adaptation:A-5": Signed(),
    "adaptation:A-6": Signed(2),
    "adaptation:A-8": Form(5),
    "adaptation:A-11": Signed(),
    "adaptation:A-12": {"agreement": Signed(), "most": Form(fixed={0: 0.9})},
    "context:E1": Signed(3, fixed={1: 1.0, 2: 500.0}),
    "context:E2": Signed(3, fixed={1: 1.0, 2: 500.0}),
    **dict.fromkeys(("dynamics:L2", "dynamics:V5", "dynamics:V9"), PROFILE),
    "dynamics:L6": Form(1, 1e-6, 0.004),
    **dict.fromkeys(("dynamics:V1", "dynamics:V3", "dynamics:V4", "dynamics:Z1"), Signed()),
    "dynamics:V2": {
        **dict.fromkeys(("causal-lm", "masked-lm", "translation"), PROFILE),
        **{
            f"{name} parameters": Form(LAYERS * COMPONENTS, fixed=dict.fromkeys(range(LAYERS * COMPONENTS), 0.02))
            for name in ("causal-lm", "masked-lm", "translation")
        },
    },
    "dynamics:V6": Form(6, 0.0, 0.06),
    "dynamics:V7": Form(2, fixed={1: 0.0}),
    "heads:C1": Signed(4),
    "heads:C2": {"attention": Signed()},
    "heads:C3": Signed(),
    "heads:C4": Form(3, 0.0, 3.0),
    "heads:C5": {"positions": Pair(), "broad": Form(1, -4.0, 0.0), "layers": Signed()},
    "heads:H1": Signed(4),
    "heads:H2": Signed(6),
    "heads:M1": {"share": Form(2, fixed={1: 48}), "together": Nats(5)},
    "heads:M2": Form(LAYERS, -0.1, 1.0),
    **{f"heads:M{number}": Nats(5) for number in (3, 4, 6)},
    "heads:M5": Signed(),
    "heads:M7": Form(9),
    "heads:V2": Signed(2),
    "heads:V3": Form(5, -0.5, 1.0),
    "heads:V4": Form(2, fixed={1: 30}),
    "heads:V5": Form(2, fixed={1: 96}),
    "heads:V6": Form(8, -1.0, 8.0),
    "heads:V7": Signed(2),
    "heads:V8": Form(3),
    "heads:V9": Signed(2),
    **{f"objectives:O{number}": Form(1, 0.3, 1.0) for number in (2, 4, 5, 7, 8, 9, 10)},
    "neurons:N2": Pair(),
    "neurons:N3": Signed(LAYERS),
    "neurons:N5": Signed(),
    "neurons:N6": Signed(),
    "objectives:O3": {"electra operations": Form(fixed={0: 1.0}), "masked operations": Form(fixed={0: 1.0})},
    "objectives:O6": Form(1, 0.3, 0.6),
    **dict.fromkeys(("probing:M-1", "probing:M-3"), Form(LAYERS + 1, 1.0, 9.0)),
    "probing:M-2": Form(LAYERS + 1, 1.0, 9.0),
    "probing:M-6": Form(LAYERS + 1, 1.0, 9.0),
    "patching:P1": {"agreement": Signed(high=0.9)},
    **{f"patching:P{number}": {"distance": Form(4)} for number in (2, 3)},
    "probing:P-1": Signed(LAYERS + 1),
    "probing:P-4": Signed(LAYERS + 1),
    "probing:P-5": Signed(LAYERS + 1),
    "probing:T-1": Form(4, 0.0, 6.0),
    "probing:T-2": Form(2, 0.0, 4.0),
    "probing:T-3": Form(3, fixed={2: 8}),
    "retrieval:R-2": Form(6, 0.0, 6.0, fixed={3: 9.0, 4: 9.0, 5: 9.0}),
    "retrieval:R-3": Form(1, 0.5, 6.0),
    "retrieval:R-21": Nats(),
    "retrieval:R-13": Signed(),
    "retrieval:R-15": {"traced": Form(2, 0.06, 0.9)},
    "retrieval:R-16": {"copying": Form(2, fixed={1: 48}), "right": Form(3)},
    "retrieval:R-17": Form(3),
    "retrieval:R-18": {"slope": Signed()},
    "retrieval:R-20": Form(4),
    "retrieval:R-22": Signed(),
    "retrieval:R-23": Form(2, 0.0, 6.0),
    "retrieval:R-24": Form(12, 0.01, 1.0),
    "routes:R1": Form(high=0.9),
    "routes:R2": Signed(high=0.9),
    "routes:R3": Signed(high=0.9),
    "routes:R4": Signed(),
    "routes:R5": Signed(),
    "sinks:S1": Signed(4),
    "sinks:S2": Form(2, 0.0, 3.0),
    "sinks:S3": Signed(),
    "sinks:S4": {"largest": Form(1, 1.0, 9000.0), "course": Form(2)},
    "sinks:S5": Signed(2),
    "time:T1": reached(1, 1, -1.0, 1.0),
    "time:T2": Signed(),
    **dict.fromkeys(("time:T3", "time:T21"), Form(30, 0.0, 12.0, dict.fromkeys(range(10, 30), 0.0))),
    "time:T4": reached(4, 4),
    "time:T5": reached(2, 2),
    "time:T6": Form(10, -1.0, 3.0, {3: 8.0, **dict.fromkeys(range(4, 10), 0.0)}),
    "time:T7": Form(6, 0.0, 3.0, dict.fromkeys(range(2, 6), 0.0)),
    "time:T8": reached(1, 1, -1.0, 1.0),
    "time:T9": reached(1, 1),
    "time:T10": Form(3, 0.0, 9.0),
    "time:T11": reached(2, 2),
    "time:T12": reached(2, 1, 0.0, 1.0),
    "time:T13": Signed(),
    "time:T16": Signed(3),
    "time:T17": Signed(2),
    "time:T18": Form(2, fixed={1: 40}),
    "time:T19": Form(3, -2.0, 3.0, {2: 0.05}),
    "time:T20": reached(2, 1),
    "time:T22": reached(2, 1, -3.0, 3.0),
    "weights:W1": Signed(),
    "weights:W2": Signed(),
    "weights:W3": Form(2, 0.0, 9.0),
}


FEED_FORWARD = np.tile([0.01, 0.01, 0.01, 0.01, 0.06, 0.06, 0.01], LAYERS)[None]
# Numbers as claimed that no search finds, since they are orders of many numbers, or of very different sizes.
TRUE: dict[str, Callable[[str], np.ndarray]] = {
    "representations:V-17": lambda name: np.linspace(0.9, 0.3, LAYERS)[None],
    "dynamics:L6": lambda name: np.array([[1e-4 if name.endswith("simpson") else 2e-3]]),
    "dynamics:V2": lambda name: np.full_like(FEED_FORWARD, 0.02) if name.endswith("parameters") else FEED_FORWARD,
}


def forms(finding: Finding) -> dict[str, Form]:
    own = FORMS.get(finding.id, {})
    by_name = own if isinstance(own, dict) else dict.fromkeys(finding.reads, own)
    curve = {None: 1, 0: LAYERS + 1, 1: LAYERS}
    return {name: by_name.get(name, Form(curve[reading.first_layer])) for name, reading in finding.reads.items()}


@cache
def searched(name: str) -> tuple[Search, dict, tuple[dict, ...]]:
    finding = FINDINGS[name]
    assert isinstance(finding, Finding)
    known = {reading: TRUE[name](reading) for reading in finding.reads} if name in TRUE else None
    search = Search(finding, forms(finding), known)
    return search, search.true(), tuple(search.without(number) for number in range(search.num_conditions))
