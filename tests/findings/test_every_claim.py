"""Every claim can hold and can fail, each by each of its conditions, and holds nowhere between."""

import random

import pytest

from .simulated_claims import MORE_SEEDS, TESTED, judged, noise_of, searched

pytestmark = pytest.mark.slow
PRESETS = 3  # seeds of the largest presets
DRAWS = 40


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
