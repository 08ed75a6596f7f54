"""Every claim can hold and can fail, each by each of its conditions, and holds nowhere between."""

import random
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest

from infoflow.findings import FINDINGS, Finding

from .simulated_claims import BINS, COMPONENTS, LAYERS, Form, Search, judged, noise_of

pytestmark = pytest.mark.slow
PRESETS = 3  # seeds of the largest presets
MORE_SEEDS = {"time:T7": 4}  # it counts seeds, and three cannot show a share
DRAWS = 40
TESTED = [name for name, one in FINDINGS.items() if isinstance(one, Finding)]
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
    "objectives:O3": {"electra operations": Form(fixed={0: 1.0}), "masked operations": Form(fixed={0: 1.0})},
    "objectives:O6": Form(1, 0.3, 0.6),
    **dict.fromkeys(("probing:M-1", "probing:M-3"), Form(LAYERS + 1, 1.0, 9.0)),
    "probing:M-2": Form(LAYERS + 1, 1.0, 9.0),
    "probing:M-6": Form(LAYERS + 1, 1.0, 9.0),
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


@pytest.mark.parametrize("name", TESTED)
def test_where_all_is_as_claimed_it_holds(name: str) -> None:
    search, true, missed = searched(name)
    assert judged(search.finding, true, noise_of(true, missed[0], search.forms), seeds=_seeds(name)) == "holds"


@pytest.mark.parametrize("name", TESTED)
def test_each_of_its_conditions_can_refute_it(name: str) -> None:
    search, true, missed = searched(name)
    for number, curves in enumerate(missed):
        assert search.margins(curves)[number] < 0, f"nothing misses condition {number}"
        noise = noise_of(true, curves, search.forms)
        assert judged(search.finding, curves, noise, seeds=_seeds(name)) == "fails", number


def _seeds(name: str) -> int:
    return MORE_SEEDS.get(name, PRESETS)


@pytest.mark.parametrize("name", TESTED)
def test_on_the_border_it_does_not_hold(name: str) -> None:
    search, true, missed = searched(name)
    border, noise = search.between(true, missed[0]), noise_of(true, missed[0], search.forms)
    verdicts = [judged(search.finding, border, noise, draw) for draw in range(5)]
    assert verdicts.count("holds") <= 1, verdicts


def test_by_chance_alone_one_claim_in_twenty_holds_at_most() -> None:
    """With three seeds, of twenty claims drawn at random, each with one condition that is just not met."""
    held = 0
    for name in random.Random(62).sample(TESTED, 20):
        search, true, missed = searched(name)
        border, noise = search.between(true, missed[0]), noise_of(true, missed[0], search.forms)
        held += sum(judged(search.finding, border, noise, draw, PRESETS) == "holds" for draw in range(DRAWS))
    assert held <= 0.05 * 20 * DRAWS
