import numpy as np
import pytest
from drawn import ShownModels, shown_tables

from infoflow.report._curves import curves, interval_note, samples_at


@pytest.fixture(scope="module")
def identity(study):
    models = ShownModels.of(study)
    return models.main(shown_tables(study)["identity_neighbours"])


def test_points_are_means_over_seeds(identity):
    table = curves(identity)
    for row in table[table["group"] != "baseline"].itertuples():
        own = [
            float(entry.value)
            for entry in identity.itertuples()
            if entry.series == row.series and entry.layer == row.layer and entry.trained == (row.group == "trained")
        ]
        assert row.value == pytest.approx(np.mean(own))
        assert row.seeds == len(own) == 3


def test_the_baseline_is_that_of_the_trained_models(identity):
    table = curves(identity)
    baseline = table[table["group"] == "baseline"]
    assert list(baseline["layer"]) == list(range(7))
    assert baseline["value"].to_numpy() == pytest.approx(identity.loc[identity["trained"], "baseline"].iloc[0])


def test_samples_are_those_of_one_line_at_one_layer(identity):
    samples = samples_at(identity, "masked-lm", 3)
    own = identity[(identity["series"] == "masked-lm") & (identity["layer"] == 3) & identity["trained"]]
    assert sorted(samples.values.values()) == pytest.approx(sorted(own["value"]))


def test_the_note_says_where_the_interval_comes_from(identity):
    assert "means over 3 seeds" in interval_note(curves(identity))
    assert "20,000 occurrences" in interval_note(curves(identity))
    assert "hollow" in interval_note(curves(identity[identity["seed"] == 1]))
    bare = identity[identity["seed"] == 1].assign(low=np.nan, high=np.nan).drop(columns="replicates")
    assert "No interval" in interval_note(curves(bare))
