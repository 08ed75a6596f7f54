"""The figure of how information depends on the number of tokens, and the squares under its curves."""

import numpy as np
import pytest
from drawn import ShownModels, drawn_section, shown_tables

from infoflow.report._curves import curves
from infoflow.report.knows._convergence import ConvergencePanel, convergence_figure, with_convergence
from infoflow.results import RunFolder

from .synthetic_run import make_study


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def models(run) -> ShownModels:
    return ShownModels.of(run)


def figures_of(run, models):
    section = drawn_section(run, "knows")
    return {figure.id: figure for figure in section.figures}


def test_the_change_by_size_is_that_of_the_tables(run, models):
    figure = figures_of(run, models)["mi-convergence"]
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
    assert f"causal LM by {last:+.3f} nats".replace("-", "−") in figure.answer[0]


def test_squares_are_hollow_where_an_estimate_has_not_converged(run, models):
    def squares(figure):
        marks = [layer["mark"] for layer in figure.panels[0].spec["layer"] if layer["mark"].get("shape") == "square"]
        return [mark["filled"] for mark in marks]

    figures = figures_of(run, models)
    assert set(squares(figures["mi-input"])) == {True}
    assert set(squares(figures["mi-output"])) == {False}
    assert squares(figures["identity"]) == []


def test_one_seed_that_has_not_converged_shows(run, models):
    frame = models.main(shown_tables(run)["mutual_information"])
    frame = frame[(frame["side"] == "input") & (frame["regime"] == "clean")].copy()
    frame.loc[(frame["seed"] == 1) & (frame["layer"] == 3) & frame["trained"], "converged"] = False
    table = with_convergence(curves(frame), frame)
    doubtful = table[~table["converged"]]
    assert set(doubtful["layer"]) == {3}
    assert set(doubtful["group"]) == {"trained"}


def test_older_tables_have_neither(run, models):
    frame = models.main(shown_tables(run)["mutual_information"])
    older = frame.drop(columns=["converged", "value_by_size"])
    assert "converged" not in with_convergence(curves(older), older)
    assert convergence_figure([ConvergencePanel("About the input token", older)], models) is None
