"""Claims about geometry: the published curves, and controls that show a claim too."""

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, evaluate


def verdict(tables, number):
    return evaluate(tables, [FINDINGS[f"representations:Z-{number}"]]).iloc[0]


@pytest.mark.parametrize(
    ("number", "effect", "threshold", "text"),
    [
        (1, 0.675 - 0.477, 0.05, "with depth, without the last layer: 0.979 ("),
        (2, -1 + 6 * 22 / (12 * 143), -0.8, "to the last layer but one: 0.177 ("),  # the weaker is GPT-2's
        (5, 0.20 - 0.105, 0.05, "0.095 ("),
        (6, 0.24 - 1.5 * 0.01, 0.0, "rise at the last layer, alone and minus 1.5 times each earlier rise: 0.225 ("),
    ],
)
def test_published_effects(published, number, effect, threshold, text):
    row = verdict(published, number)
    assert (row["verdict"], row["threshold"]) == ("holds", threshold)
    assert row["effect"] == pytest.approx(effect)
    assert text in row["note"]


@pytest.mark.parametrize("number", [1, 5, 6])
def test_claim_that_untrained_models_show_does_not_hold(published, number):
    geometry = published["geometry"]
    trained = geometry[geometry["trained"]]
    published["geometry"] = pd.concat([trained, trained.assign(trained=False)])
    row = verdict(published, number)
    assert (row["verdict"], row["control_name"]) == ("undetermined", f"untrained model{'s' * (number == 5)}")


def test_contextualisation_of_untrained_models_is_noted(published):
    geometry = published["geometry"]
    trained = geometry[geometry["trained"]]
    row = verdict(published | {"geometry": pd.concat([trained, trained.assign(trained=False)])}, 2)
    assert row["verdict"] == "holds"
    assert "for comparison, untrained models: -0.923 Spearman's rho, which satisfies the claim too" in row["note"]


def test_similarity_that_falls_though_words_are_shuffled_is_no_contextualisation(make_study):
    study = make_study()
    study.shuffled_similarity = study.self_similarity
    row = verdict(study.tables(), 2)
    assert (row["verdict"], row["control_name"]) == ("undetermined", "shuffled words")


def test_a_small_fall_is_no_contextualisation_however_steady(make_study):
    study = make_study()
    for objective, average in study.average_similarity.items():
        study.self_similarity[objective] = average + np.linspace(0.34, 0.32, 13)
    assert verdict(study.tables(), 2)["verdict"] == "fails"


def test_jump_of_the_masked_lm_too_does_not_set_translation_apart(make_study):
    study = make_study()
    study.average_similarity["masked-lm"] = study.average_similarity["translation"] - 0.1
    row = verdict(study.tables(), 6)
    assert (row["verdict"], row["control_name"]) == ("undetermined", "masked LM")


def test_fall_at_the_last_layer_is_no_jump_though_it_is_the_smallest(make_study):
    study = make_study()
    study.average_similarity["translation"] = np.append(np.linspace(0.6, 0.2, 12), 0.19)
    row = verdict(study.tables(), 6)
    assert row["verdict"] == "fails"
    assert "minus 1.5 times each earlier rise: -0.01" in row["note"]


def test_isotropic_gaussians_have_no_gap(published):
    row = verdict(published, 5)
    assert "control, isotropic Gaussian: 0 cosine" in row["note"]
    tables = published | {"geometry": published["geometry"].assign(baseline=lambda frame: frame["value"])}
    assert verdict(tables, 5)["control_name"] == "isotropic Gaussian"
    assert verdict(tables, 5)["verdict"] == "undetermined"
