"""Differences of bounded scores: intervals within their range, and with a width where all answers agree."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.foundation import NUM_BLOCKS, replicate_weights
from infoflow.results import Samples, estimate, ratio_estimate, scale_of

METRICS = {"accuracy": (0, 1), "bleu": (0, 100), "pearson": (-1, 1)}


def rows(metric, values):
    """A table's rows: one for each seed, from the score of each example (seeds, examples)."""
    least, most = METRICS[metric]
    found = []
    for seed, own in enumerate(values):
        blocks = np.arange(len(own)) % NUM_BLOCKS
        counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(float)
        sums = np.bincount(blocks, own, NUM_BLOCKS)
        row = ratio_estimate(sums, counts, 0.0, scale=(float(least), float(most)))
        found.append({"seed": seed, "metric": metric, **row})
    frame = pd.DataFrame(found)
    frame.attrs["unit"] = "percent" if metric == "bleu" else "score"
    return frame


@st.composite
def two_models(draw):
    metric = draw(st.sampled_from(sorted(METRICS)))
    seeds, examples = draw(st.sampled_from((1, 2, 3))), draw(st.integers(2, 70))
    least, most = METRICS[metric]
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    shares = [draw(st.sampled_from((0.0, 0.1, 0.9, 1.0))) for _ in range(2)]
    return metric, [np.where(random.random((seeds, examples)) < share, float(most), float(least)) for share in shares]


@settings(max_examples=150, deadline=None)
@given(two_models())
def test_a_difference_lies_within_its_range(given_models):
    metric, (first, second) = given_models
    least, most = METRICS[metric]
    gain = (Samples.of(rows(metric, first)) - Samples.of(rows(metric, second))).estimate()
    assert least - most <= gain.low <= gain.value <= gain.high <= most - least


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_difference_of_two_models_that_are_always_right_is_not_certain(seeds):
    right = rows("accuracy", np.ones((seeds, 20)))
    gain = (Samples.of(right) - Samples.of(right)).estimate()
    assert gain.value == 0
    assert gain.low < -0.05 < 0.05 < gain.high
    assert (gain.low, gain.high) == pytest.approx((-0.17, 0.17), abs=0.03)  # Newcombe's of 20 of 20 and 20 of 20


def test_the_side_that_is_always_right_widens_a_difference():
    random = np.random.default_rng(0)
    right = Samples.of(rows("accuracy", np.ones((1, 20))))
    often = Samples.of(rows("accuracy", (random.random((1, 20)) < 0.7) * 1.0))
    alone, gain = often.estimate(), (right - often).estimate()
    assert gain.high - gain.value >= alone.value - alone.low
    assert gain.value - gain.low > alone.high - alone.value  # the right side's own low end counts
    assert gain.high <= 1


def test_scales_of_metrics_give_that_of_their_difference():
    samples = [Samples.bare({0: 0.5}, scale_of(metric)) for metric in ("accuracy", "pearson")]
    assert (samples[0] - samples[0]).scale == (-1.0, 1.0)
    assert (samples[1] - samples[1]).scale == (-2.0, 2.0)
    assert (samples[0] - Samples.bare({0: 2.0})).scale == "any"


def test_numbers_outside_their_scale_keep_a_plain_interval():
    drawn = 3.0 + (replicate_weights()[:, 0] - 1) * 0.1
    row = estimate(3.0, drawn, 0.0, 10)
    frame = pd.DataFrame([{"seed": 0, "metric": "accuracy", **row}])
    found = (Samples.of(frame) - Samples.of(frame.assign(value=0.0, replicates=[[0.0] * len(drawn)]))).estimate()
    assert found.low < 3 < found.high
