"""The figure of how information depends on the number of tokens, and the squares under its curves."""

import numpy as np
import pytest
from drawn import ModelSelection, drawn_figures, shown_tables
from whole_study import InMemory

from infoflow.results import RunFolder

from .synthetic_run import make_study


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def models(run) -> ModelSelection:
    return ModelSelection.of(run)


def figures_of(run, change=lambda frame: frame):
    """Of the information about tokens alone, changed."""
    table = change(run.tables["mutual_information"])
    return drawn_figures(InMemory(run.read(), {"mutual_information": table}), "knows")


def squares(figure):
    """Whether each kind of square is filled, and where its squares stand."""
    spec = figure.panels[0].spec
    found = {}
    for layer in spec["layer"]:
        if layer["mark"].get("shape") == "square":
            rows = spec["datasets"][layer["data"]["name"]]
            places = found.setdefault(layer["mark"]["filled"], set())
            places |= {(row["series"], row["layer"]) for row in rows}
    return found


def test_the_change_by_size_is_that_of_the_tables(run, models):
    figure = figures_of(run)["mi-convergence"]
    frame = models.main(shown_tables(run)["mutual_information"])
    own = frame[(frame["side"] == "input") & (frame["regime"] == "clean") & frame["trained"]]
    own = own[own["objective"] == "causal-lm"]
    by_layer = {layer: np.mean(rows["value_by_size"].tolist(), axis=0) for layer, rows in own.groupby("layer")}
    data = figure.data
    shown = data[
        (data["side"] == "About the input token")
        & (data["estimate"] == "corrected")
        & (data["group"] == "trained")
        & data["series"].str.contains("causal")
    ]
    np.testing.assert_allclose(shown["change"], by_layer[max(by_layer)] - by_layer[0])
    assert shown["tokens"].is_monotonic_increasing
    last = np.diff(shown["change"].to_numpy())[-1]
    assert f"at most {abs(last):.3f} nats" in figure.words


def test_squares_are_hollow_where_an_estimate_has_not_converged(run):
    figures = drawn_figures(run, "knows")
    assert set(squares(figures["mi-input"])) == {True}
    assert set(squares(figures["mi-output"])) == {False}
    assert squares(figures["identity"]) == {}


def test_one_seed_that_has_not_converged_shows(run):
    def spoilt(frame):
        wanted = (frame["side"] == "input") & (frame["regime"] == "clean") & frame["trained"] & (frame["seed"] == 1)
        bad = wanted & (frame["layer"] == 3) & (frame["objective"] == "translation")
        return frame.assign(converged=frame["converged"] & ~bad)

    figure = figures_of(run, spoilt)["mi-input"]
    doubtful = figure.data[~figure.data["converged"]]
    assert doubtful[["series", "group", "layer"]].to_numpy().tolist() == [["translation", "trained", 3]]
    found = squares(figure)
    assert found[False] == {("translation", 3)}
    assert ("translation", 2) in found[True]
    assert ("translation", 3) not in found[True]
