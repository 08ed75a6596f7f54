"""The sentences follow the data: numbers are computed again here, and other data give other words."""

import re

import numpy as np
import pandas as pd
import pytest
import small_run
from drawn import ModelSelection, drawn_figures, shown_tables

from infoflow.foundation import NUM_BLOCKS
from infoflow.results import ratio_estimate


@pytest.fixture
def told(tmp_path_factory):
    """What a figure of these curves says."""

    def tell(*curves, row=small_run.information, figure="mi-input"):
        rows = [row(**one) for curve in curves for one in curve]
        table = {"information": "mutual_information", "identity": "identity_neighbours"}[row.__name__]
        run = small_run.write_run(tmp_path_factory.mktemp("run"), **{table: rows})
        return drawn_figures(run, "knows")[figure].answer

    return tell


def _curve(values, key="causal-lm", trained=True, noise=0.01, seeds=1):
    generator = np.random.default_rng(len(key))  # lines have noise of their own
    rows = []
    for seed in range(seeds):
        for layer, value in enumerate(values):
            value = value + generator.normal(0, noise) * (seeds > 1)
            replicates = value + generator.normal(0, noise, 200)
            low, high = np.quantile(replicates, [0.025, 0.975])
            row = {"objective": key, "trained": trained, "seed": seed, "layer": layer, "value": value, "count": 100}
            rows.append({**row, "low": low, "high": high, "baseline": 0.1, "replicates": list(replicates)})
    return rows


def test_a_fall_is_told_with_its_size_and_interval(told):
    (sentence,) = told(_curve([5.3, 5.0, 4.0]))
    match = re.fullmatch(
        r"Estimate limited by its clusters: from layer 0 to layer 2, causal LM falls by ([\d.]+) nats \(([\d.]+) to "
        r"([\d.]+)\)\.",
        sentence,
    )
    assert match, sentence
    size, low, high = map(float, match.groups())
    assert size == pytest.approx(1.3, abs=0.01)
    assert low < 1.3 < high


def test_the_opposite_data_give_the_opposite_verb(told):
    assert "rises by 1.3" in told(_curve([4.0, 5.0, 5.3]))[0]


def test_a_change_within_its_interval_is_not_called_a_change(told):
    sentence = told(_curve([5.0, 5.0, 5.001], noise=0.05), _curve([5, 5, 4.5], "translation"))[0]
    assert "translation falls by 0.5" in sentence
    assert re.search(
        r"; there is no clear change for causal LM \((−0\.0\d|0\.0\d) nats, −0\.\d+ to 0\.\d+\)\.$", sentence
    )


def test_a_dip_back_to_the_start_is_told_as_such(told):
    sentence = told(_curve([5.0, 4.0, 5.001], noise=0.05))[0]
    assert re.search(r"causal LM falls by 1\.\d+ .*; overall it ends about where it began \(.* to .*\)", sentence)


def test_a_dip_is_told_with_its_layer(told):
    sentence = told(_curve([5.2, 5.0, 4.5, 4.9, 5.1]))[0]
    assert "falls by 0.7" in sentence
    assert "up to layer 2 and recovers 0.6" in sentence
    assert "; overall it falls by 0.1" in sentence


def test_a_peak_is_told_too(told):
    assert "rises by 0.5" in told(_curve([4.0, 4.5, 4.1]))[0]


def test_a_dip_within_the_noise_is_not_told(told):
    assert "up to layer" not in told(_curve([5.2, 4.99, 5.0], noise=0.05))[0]


def test_all_lines_and_the_control_are_told(told):
    first, control = told(_curve([5, 4]), _curve([5, 4.5], "translation"), _curve([4.3, 4.28], trained=False))
    assert "causal LM falls by 1.0" in first
    assert "translation falls by 0.5" in first
    assert control == "Untrained models of the same shape move by at most 0.02 nats."


def test_lines_of_different_depth_say_their_last_layer(told):
    sentence = told(_curve([5, 4]), _curve([5, 4.5, 4.2], "translation"))[0]
    assert "(its last layer is 2)" in sentence


def test_a_single_layer_is_a_level(told):
    assert "causal LM has 5.0" in told(_curve([5.0]))[0]


def test_no_control_no_sentence_about_it(told):
    assert len(told(_curve([5, 4]))) == 1


def test_the_order_names_what_is_not_clear(told):
    alike, clear = (
        told(*curves, row=small_run.identity, figure="identity")[0]
        for curves in (
            (_curve([1, 0.9], noise=0.1), _curve([1, 0.91], "translation", noise=0.1)),
            (_curve([1, 0.7]), _curve([1, 0.9], "translation")),
        )
    )
    assert alike.endswith("; no clear difference between translation and causal LM.")
    assert re.match(r"At the top layer this share is, in order: translation 0\.9\d* .* and causal LM 0\.7", clear)


def test_the_study_s_own_sentence_repeats_its_table(study):
    models = ModelSelection.of(study)
    frame = pd.DataFrame(models.main(shown_tables(study)["mutual_information"]))
    frame = frame[(frame["regime"] == "clean") & (frame["side"] == "input")]
    sentence = drawn_figures(study, "knows")["mi-input"].answer[0]
    own = frame[(frame["series"] == "causal-lm") & frame["trained"]].pivot(
        index="seed", columns="layer", values="value"
    )
    drop = float((own[0] - own[6]).mean())
    assert f"causal LM falls by {drop:.2f} nats" in sentence


@pytest.mark.parametrize("draw", [6, 9])
def test_the_largest_of_equal_layers_is_no_peak(draw, told):
    """In these draws an inner layer lies clearly beyond both ends on all sentences, by chance; on those that did not
    choose it, it does not."""
    generator = np.random.default_rng(draw)
    words = np.bincount(generator.integers(0, NUM_BLOCKS, 600), minlength=NUM_BLOCKS)
    right = [generator.binomial(words, 0.5) * 1.0 for _ in range(14)]
    rows = [ratio_estimate(one, words * 1.0, 0.1) for one in right]
    curve = [{"objective": "causal-lm", "layer": layer, **row} for layer, row in enumerate(rows)]
    assert "up to layer" not in " ".join(told(curve, row=small_run.identity, figure="identity"))
