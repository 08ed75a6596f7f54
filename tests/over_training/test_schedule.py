"""Schedules of checkpoints: published lists of steps, and a choice among those that there are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.training import DEFAULT_SCHEDULE, checkpoint_steps, select_steps

PYTHIA = [2**power for power in range(10)] + list(range(1000, 143_001, 1000))
MULTIBERTS = list(range(20_000, 200_001, 20_000)) + list(range(300_000, 2_000_001, 100_000))


@pytest.mark.parametrize(
    ("schedule", "updates", "steps"),
    [
        ("log:12", 5000, [1, 2, 4, 9, 20, 44, 97, 213, 469, 1032, 2272, 5000]),
        ("log:12", 100, [1, 2, 3, 4, 6, 9, 13, 20, 30, 45, 67, 100]),
        ("log:12", 10, list(range(1, 11))),
        ("log:1", 70, [70]),
        ("linear:4", 10, [3, 5, 8, 10]),
        ("every:30", 100, [30, 60, 90, 100]),
        ("powers", 20, [1, 2, 4, 8, 16, 20]),
        ("0, 10,50", 100, [10, 50, 100]),
        ("every:50+log:2", 100, [1, 50, 100]),
    ],
)
def test_steps_of_each_word(schedule: str, updates: int, steps: list[int]) -> None:
    assert checkpoint_steps(schedule, updates) == [0, *steps]


def test_the_default_is_dense_early_and_even_late() -> None:
    wanted = "0 1 2 3 5 9 16 28 50 89 158 281 400 500 625 889 1250 1581 1875 2500 2812 3125 3750 4375 5000"
    assert checkpoint_steps(DEFAULT_SCHEDULE, 5000, 400) == [int(step) for step in wanted.split()]


@given(st.integers(1, 3000), st.integers(1, 60))
def test_log_gives_exactly_as_many_as_asked(updates: int, k: int) -> None:
    steps = checkpoint_steps(f"log:{k}", updates)
    assert len(steps) == min(k, updates) + 1
    assert steps[0] == 0
    assert steps[-1] == updates
    assert checkpoint_steps(f"linear:{updates + k}", updates) == list(range(updates + 1))


def explicit_selection(available: list[int], k: int) -> list[int]:
    """One after another: of all later steps that leave enough, the one whose logarithm is nearest."""
    chosen = [available[0]]
    while len(chosen) < k:
        left = k - len(chosen)
        ideal = math.log2(chosen[-1]) + math.log2(available[-1] / chosen[-1]) / left
        later = [step for step in available if step > chosen[-1]]
        later = later[: len(later) - (left - 1)]
        gaps = [abs(math.log2(step) - ideal) for step in later]
        chosen.append(next(step for step, gap in zip(later, gaps, strict=True) if gap <= min(gaps) + 1e-12))
    return chosen


@pytest.mark.parametrize(
    ("available", "k", "steps"),
    [
        (PYTHIA, 12, [1, 4, 16, 32, 128, 256, 1000, 3000, 8000, 21_000, 55_000, 143_000]),
        (MULTIBERTS, 6, [20_000, 60_000, 140_000, 300_000, 800_000, 2_000_000]),
        (range(500, 3001, 500), 4, [500, 1000, 1500, 3000]),
        ([0, *PYTHIA], 2, [0, 1, 143_000]),
        ([7, 3, 0], 5, [0, 3, 7]),
        ([3, 7], 1, [7]),
    ],
)
def test_selected_steps(available, k: int, steps: list[int]) -> None:
    assert select_steps(available, k) == steps


@given(st.sets(st.integers(1, 100_000), min_size=3, max_size=40), st.integers(2, 20))
def test_selection_is_the_explicit_one(available: set[int], k: int) -> None:
    steps = sorted(available)
    if k < len(steps):
        assert select_steps(steps, k) == explicit_selection(steps, k)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("log:0", "log takes a number from 1 .* Got 'log:0'. Write log:K"),
        ("every:-3", "every takes a number"),
        ("log:1.5", "log takes a number"),
        ("sqrt:4", "No schedule of checkpoints is called 'sqrt:4'"),
        ("", "No schedule of checkpoints"),
        ("5,5", "different"),
        ("5,101", "at most the last update, 100"),
        ("log:4+", "No schedule"),
    ],
)
def test_mistakes_name_the_grammar(schedule: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        checkpoint_steps(schedule, 100)


def test_impossible_trainings_and_choices_are_refused() -> None:
    with pytest.raises(UserError, match="at least 1 update"):
        checkpoint_steps("log:3", 0)
    with pytest.raises(UserError, match="no more warm-up updates"):
        checkpoint_steps("log:3", 10, 11)
    for steps, k in (([1, 2], 0), ([1, 1], 1), ([-1, 2], 1)):
        with pytest.raises(UserError, match="distinct and at least 0"):
            select_steps(steps, k)
