"""An extreme of many comes with a number that did not choose it, or the sentence says that it did."""

import numpy as np
import pandas as pd
import pytest

from infoflow.foundation import NUM_BLOCKS
from infoflow.report._in_words import Candidate, both_extremes, extreme
from infoflow.report._samples import Estimate, Samples
from infoflow.results import ratio_estimate
from infoflow.subjects.allocation.figures._rows import most_in_layer


def noise(seed: int, examples: int = 400) -> Samples:
    """An accuracy of one half, by chance a little more or less."""
    right = np.random.default_rng(seed).random(examples) < 0.5
    blocks = np.arange(examples) % NUM_BLOCKS
    counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(float)
    row = ratio_estimate(np.bincount(blocks, right, NUM_BLOCKS), counts, 0.5, scale="share")
    return Samples.of(pd.DataFrame([{"seed": 0, "metric": "accuracy", **row}]))


def at(value: float) -> Estimate:
    return Estimate(value=value, low=value - 0.01, high=value + 0.01, seeds=1, count=10)


def test_the_largest_of_many_equal_ones_is_not_larger_on_the_other_half():
    told = []
    for repeat in range(20):
        found = extreme([Candidate.held_out(f"in {one}", noise(100 * repeat + one)) for one in range(40)])
        assert not found.of
        told.append(found.candidate.estimate.value)
    assert abs(np.mean(told) - 0.5) < 3 * 0.5 / np.sqrt(20 * 200)


@pytest.mark.parametrize("many", [3, 4])
def test_the_largest_of_many_says_that_its_own_number_chose_it(many):
    candidates = [Candidate(f"in {one}", at(one / 10)) for one in range(many)]
    assert (f", the largest of {many} and so partly by chance" in extreme(candidates).told()) == (many > 3)
    assert (f", the smallest of {many} " in extreme(candidates, least=True).told()) == (many > 3)
    assert both_extremes(candidates).endswith(f", extremes of {many} and so partly by chance") == (many > 3)


def test_training_sentences_choose_a_layer_and_held_out_ones_give_its_share():
    train, held_out = pd.Series({0: 30.0, 1: 25.0}), pd.Series({0: 20.0, 1: 26.0})
    assert most_in_layer(train, held_out) == "most in layer 0 (20% on held-out sentences)"
    assert most_in_layer(train) == "most in layer 0 (30%)"
