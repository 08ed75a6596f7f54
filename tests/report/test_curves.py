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


def test_the_section_stands_where_no_stack_that_is_shown_has_neighbours(study):
    """Few tokens of an encoder-decoder: only its decoder repeats one often enough."""
    tables = {name: study.tables[name] for name in ("mutual_information", "identity_neighbours")}
    own = tables["identity_neighbours"]
    tables["identity_neighbours"] = own[own["objective"] == "translation"].assign(stack="decoder")
    figures = drawn_figures(InMemory(study.read(), tables), "knows")
    assert "identity" not in figures
    assert "mi-input" in figures


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


def test_the_note_says_where_the_interval_comes_from(study):
    caption = figure_of(study).caption
    assert "Means over 3 seeds, bands their 95% intervals over seeds and sentences" in caption
    assert "20,000 occurrences" in caption
    assert "One seed; bands are 95% intervals over sentences" in figure_of(study, lambda f: f[f["seed"] == 1]).caption

    def bare(frame):
        return frame[frame["seed"] == 1].assign(low=np.nan, high=np.nan).drop(columns="replicates")

    assert "no interval is known, and no band is drawn" in figure_of(study, bare).caption
