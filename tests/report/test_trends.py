"""The sentences follow the data: numbers are computed again here, and other data give other words."""

import re

import numpy as np
import pandas as pd
import pytest
from drawn import Series, ShownModels, shown_tables

from infoflow.report._trends import Wording, control_sentence, order_sentence, trend_sentences

LINE = Series(key="causal-lm", label="causal LM", slot=0)
OTHER = Series(key="translation", label="translation", slot=2)
NATS = Wording("nats", what="of information")


def _curve(values, key="causal-lm", trained=True, noise=0.01, seeds=1):
    generator = np.random.default_rng(len(key))  # lines have noise of their own
    rows = []
    for seed in range(seeds):
        for layer, value in enumerate(values):
            value = value + generator.normal(0, noise) * (seeds > 1)
            replicates = value + generator.normal(0, noise, 200)
            low, high = np.quantile(replicates, [0.025, 0.975])
            row = {"series": key, "trained": trained, "seed": seed, "layer": layer, "value": value, "count": 100}
            rows.append({**row, "low": low, "high": high, "baseline": 0.1, "replicates": list(replicates)})
    return pd.DataFrame(rows)


def test_a_fall_is_told_with_its_size_and_interval():
    (sentence,) = trend_sentences(_curve([5.3, 5.0, 4.0]), [LINE], NATS)
    match = re.fullmatch(
        r"From layer 0 to layer 2, causal LM loses ([\d.]+) nats \(([\d.]+) to ([\d.]+)\) of information\.", sentence
    )
    assert match, sentence
    size, low, high = map(float, match.groups())
    assert size == pytest.approx(1.3, abs=0.01)
    assert low < 1.3 < high


def test_the_opposite_data_give_the_opposite_verb():
    assert "gains 1.3" in trend_sentences(_curve([4.0, 5.0, 5.3]), [LINE], NATS)[0]


def test_a_change_within_its_interval_is_not_called_a_change():
    frame = pd.concat([_curve([5.0, 5.0, 5.001], noise=0.05), _curve([5, 5, 4.5], "translation")], ignore_index=True)
    sentence = trend_sentences(frame, [LINE, OTHER], NATS)[0]
    assert "translation loses 0.5" in sentence
    assert re.search(
        r"; there is no clear change for causal LM \((−0\.0\d|0\.0\d) nats, −0\.\d+ to 0\.\d+\)\.$", sentence
    )


def test_a_dip_back_to_the_start_is_told_as_such():
    sentence = trend_sentences(_curve([5.0, 4.0, 5.001], noise=0.05), [LINE], NATS)[0]
    assert re.search(r"causal LM ends about where it began \(.* to .*\), having fallen by 1\.", sentence)


def test_a_dip_is_told_with_its_layer():
    sentence = trend_sentences(_curve([5.2, 5.0, 4.5, 4.9, 5.1]), [LINE], NATS)[0]
    assert "having fallen by 0.7" in sentence
    assert "up to layer 2 and recovered 0.6" in sentence


def test_a_peak_is_told_too():
    assert "having risen by 0.5" in trend_sentences(_curve([4.0, 4.5, 4.1]), [LINE], NATS)[0]


def test_a_dip_within_the_noise_is_not_told():
    assert "having" not in trend_sentences(_curve([5.2, 4.99, 5.0], noise=0.05), [LINE], NATS)[0]


def test_all_lines_and_the_control_are_told():
    frame = pd.concat(
        [_curve([5, 4]), _curve([5, 4.5], "translation"), _curve([4.3, 4.28], trained=False)], ignore_index=True
    )
    first, control = trend_sentences(frame, [LINE, OTHER], NATS)
    assert "causal LM loses 1.0" in first
    assert "translation loses 0.5" in first
    assert control == "Untrained models of the same shape move by at most 0.02 nats."


def test_lines_of_different_depth_say_their_last_layer():
    frame = pd.concat([_curve([5, 4]), _curve([5, 4.5, 4.2], "translation")], ignore_index=True)
    assert "(its last layer is 2)" in trend_sentences(frame, [LINE, OTHER], NATS)[0]


def test_a_single_layer_is_a_level():
    assert "causal LM has 5.0" in trend_sentences(_curve([5.0]), [LINE], NATS)[0]


def test_no_control_no_sentence_about_it():
    assert control_sentence(_curve([5, 4]), [LINE], "nats") == ""


def test_the_order_names_what_is_not_clear():
    frame = pd.concat([_curve([1, 0.9], noise=0.1), _curve([1, 0.91], "translation", noise=0.1)], ignore_index=True)
    assert order_sentence(frame, [LINE, OTHER], "At the top").endswith(
        "; no clear difference between translation and causal LM."
    )
    clear = pd.concat([_curve([1, 0.7]), _curve([1, 0.9], "translation")], ignore_index=True)
    assert re.match(
        r"At the top: translation 0\.9\d* .* and causal LM 0\.7", order_sentence(clear, [LINE, OTHER], "At the top")
    )


def test_the_study_s_own_sentence_repeats_its_table(study):
    models = ShownModels.of(study)
    frame = models.main(shown_tables(study)["mutual_information"])
    frame = frame[(frame["regime"] == "clean") & (frame["side"] == "input")]
    sentence = trend_sentences(frame, list(models.series), NATS)[0]
    own = frame[(frame["series"] == "causal-lm") & frame["trained"]].pivot(
        index="seed", columns="layer", values="value"
    )
    drop = float((own[0] - own[6]).mean())
    assert f"causal LM loses {drop:.2f} nats" in sentence
