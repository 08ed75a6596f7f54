import numpy as np
import pytest
from drawn import ModelSelection, drawn_figures, shown_tables
from whole_study import InMemory


@pytest.fixture(scope="module")
def identity(study):
    models = ModelSelection.of(study)
    return models.main(shown_tables(study)["identity_neighbours"])


def figure_of(study, change=lambda frame: frame):
    table = change(study.tables["identity_neighbours"])
    return drawn_figures(InMemory(study.read(), {"identity_neighbours": table}), "knows")["identity"]


def test_points_are_means_over_seeds(study, identity):
    table = figure_of(study).data
    for row in table[table["group"] != "baseline"].itertuples():
        own = [
            float(entry.value)
            for entry in identity.itertuples()
            if entry.series == row.series and entry.layer == row.layer and entry.trained == (row.group == "trained")
        ]
        assert row.value == pytest.approx(np.mean(own))
        assert row.seeds == len(own) == 3
    assert len(table) == 3 * 2 * 7 + 7


def test_the_baseline_is_that_of_the_trained_models(study, identity):
    table = figure_of(study, lambda frame: frame.assign(baseline=frame["baseline"] + ~frame["trained"])).data
    baseline = table[table["group"] == "baseline"]
    assert list(baseline["layer"]) == list(range(7))
    assert baseline["value"].to_numpy() == pytest.approx(identity.loc[identity["trained"], "baseline"].iloc[0])


def test_samples_are_those_of_one_line_at_one_layer(study):
    table = study.tables["mutual_information"]
    table = table[(table["objective"] == "causal-lm") & table["trained"] & (table["regime"] == "clean")]
    means = table.groupby(["side", "layer"])["value"].mean()
    data = drawn_figures(study, "knows")["mi-plane"].data
    drawn = data[(data["series"] == "causal-lm") & (data["group"] == "trained")].set_index("layer")
    assert list(drawn.index) == list(range(7))
    for layer, row in drawn.iterrows():
        assert row["input"] == pytest.approx(means["input", layer])
        assert row["output"] == pytest.approx(means["output", layer])
