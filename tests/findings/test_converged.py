"""A verdict is refused where half of the sentences would move the effect as far as the threshold is away."""

import numpy as np
import pytest

from infoflow.findings import FINDINGS, evaluate

V1, V17 = "representations:V-1", "representations:V-17"


def verdict(tables, name):
    return evaluate(tables, [FINDINGS[name]]).iloc[0]


def with_half(tables, by_layer):
    """The tables with what half of the sentences give: `by_layer` nats more at each layer."""
    table = tables["mutual_information"]
    return tables | {"mutual_information": table.assign(at_half=table["value"] + by_layer(table["layer"]))}


@pytest.fixture
def slightly(make_study):
    """A causal LM that forgets .40 nats in even steps, where .33 are needed."""
    study = make_study()
    study.information["causal-lm", "clean", "input"] = np.linspace(5.3, 4.9, 7)
    return study.tables()


def test_an_effect_that_moved_less_than_its_distance_stands(slightly):
    assert verdict(slightly, V1)["verdict"] == "holds"
    row = verdict(with_half(slightly, lambda layer: 0.06 * layer / 6), V1)
    assert row["verdict"] == "holds"
    assert "converged" not in row["reason"]


@pytest.mark.parametrize("move", [0.08, -0.08])
def test_an_effect_that_moved_as_far_as_the_threshold_is_away_is_undetermined(slightly, move):
    row = verdict(with_half(slightly, lambda layer: move * layer / 6), V1)
    assert row["verdict"] == "undetermined"
    half = 0.4 - move
    assert f"has not converged: half of the sentences give {half:.3g} nats, all of them 0.4," in row["reason"]
    assert "Total fall of the information about the input has not converged" in row["reason"]


def test_what_fails_for_want_of_tokens_is_undetermined_too(make_study):
    study = make_study()
    study.information["causal-lm", "clean", "input"] = np.linspace(5.3, 5.02, 7)
    tables = study.tables()
    assert verdict(tables, V1)["verdict"] == "fails"
    row = verdict(with_half(tables, lambda layer: 0.1 * layer / 6), V1)
    assert row["verdict"] == "undetermined"


def test_claims_that_read_other_tables_too_are_judged(make_study):
    tables = make_study().tables()
    assert verdict(with_half(tables, lambda layer: 0 * layer), V17)["verdict"] == "holds"
    row = verdict(with_half(tables, lambda layer: 0.9 * layer), V17)
    assert row["verdict"] == "undetermined"
    assert "has not converged" in row["reason"]
