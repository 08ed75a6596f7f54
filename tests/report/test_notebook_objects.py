"""Figures from any table, and what runs, tables and findings show of themselves."""

import re

import pandas as pd
import pytest

from infoflow import Run, plot, set_display
from infoflow.foundation import PlainDisplay, SilentDisplay, UserError, current_display

HOSTILE = '</script><img src=x onerror="alert(1)">'


def test_a_table_of_a_run_becomes_the_report_s_figure(study, story):
    figure = plot(Run(study).tables["mutual_information"])
    told = next(one for one in story.figures if one.id == "mi-input")
    assert figure.name == "representations/mutual-information"
    assert figure.question == told.question
    assert figure.answer == " ".join(told.answer)
    assert plot(Run(study).tables["mutual_information"], "information-plane").id == "mi-plane"
    with pytest.raises(UserError, match=r"not drawn as 'plain'\. It is drawn as: representations/information-plane"):
        plot(Run(study).tables["mutual_information"], "plain")


def test_own_tables_are_drawn_by_what_they_hold():
    layers = pd.DataFrame({"layer": [0, 1, 2], "value": [0.1, 0.2, 0.4]})
    assert plot(layers).answer == "From layer 0 to layer 2, model gains 0.300."
    assert plot(layers, table_name="my accuracy").question == "My accuracy by layer"
    heads = layers.assign(head=0)
    assert plot(heads).answer == "Highest in model at layer 2, head 0: 0.4; the mean over heads is 0.233."
    dots = pd.DataFrame({"model": ["a", "b"], "value": [1.0, 3.0], "low": [0.5, 2.0], "high": [1.5, 4.0]})
    assert plot(dots).answer == "Most: b (3); least: a (1)."
    assert len(plot(layers)._panels) == len(plot(heads)._panels) == len(plot(dots)._panels) == 1


def test_models_side_by_side_are_tables_by_their_names():
    layers = pd.DataFrame({"layer": [0, 1], "value": [0.1, 0.2]})
    both = plot({"small": layers, "large": layers.assign(value=0.5)})
    assert set(both.data["model"]) == {"small", "large"}
    assert "small gains 0.100" in both.answer


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"x": [1]}), "needs the column value. Got x"),
        (pd.DataFrame({"value": ["a"]}), "must hold numbers"),
        (pd.DataFrame({"value": []}), "no rows"),
        ([1, 2], "Got list"),
        ({}, "tables by the names of their models"),
        ({"a": 3}, "a data frame. Got int"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(table, message):
    with pytest.raises(UserError, match=re.escape(message)):
        plot(table)


def test_hostile_names_are_shown_as_text(study):
    dots = pd.DataFrame({"model": [HOSTILE, "b"], "value": [1.0, 3.0], "note": [HOSTILE, ""]})
    shown = [plot(dots)._repr_html_(), plot(dots).live()._repr_html_()]
    from infoflow.results import Table

    shown.append(Table.of(dots)._repr_html_())
    for html in shown:
        assert "<img src=x" not in html
        assert "</script><img" not in html
    assert len(repr(Run(study))) < 400


def test_a_run_shows_its_figures_and_tables_by_name(study, report):
    run = Run(study)
    html = run._repr_html_()
    assert "run.figures[&#34;representations/mutual-information&#34;]" in html
    assert "How much do representations encode about the input token" in html
    assert "run.tables[&#34;head_confidence&#34;]" in html
    assert len(repr(run.tables)) < 400


def test_tables_hide_their_replicates_when_shown_and_keep_them(study):
    table = Run(study).tables["mutual_information"]
    assert "replicates" in table
    assert "replicates" not in repr(table)
    assert "replicates" not in table.head(2)._repr_html_()
    assert table.head(2).schema.name == "mutual_information"


def test_findings_are_a_scorecard_and_what_is_selected_of_them_a_plain_frame(study):
    findings = Run(study).findings
    html = findings._repr_html_()
    assert "claims were checked on these models" in html
    assert "cannot be tested here" in html
    assert type(findings[findings["verdict"] == "holds"]) is pd.DataFrame
    assert len(repr(findings)) < 400


def test_the_display_of_the_library_is_chosen_by_name():
    try:
        set_display("plain")
        assert isinstance(current_display(), PlainDisplay)
        with pytest.raises(UserError, match="Got 'loud'"):
            set_display("loud")
    finally:
        set_display("silent")
    assert isinstance(current_display(), SilentDisplay)


def test_a_table_with_checkpoints_is_drawn_over_updates():
    rows = [
        {"model": "causal-lm/seed-0", "objective": "causal-lm", "variant": "", "architecture": "bert", "start": "",
         "seed": 0, "update": update, "trained": True, "tokens": 10.0 * update, "same_as": -1, "words": words,
         "value": 4.0 - rate * update, "low": 3.9 - rate * update, "high": 4.1 - rate * update}
        for update in (0, 1, 10) for words, rate in (("common", 0.2), ("rare", 0.1))
    ]  # fmt: skip
    shown = plot(pd.DataFrame(rows), table_name="my-loss")
    assert shown.answer == "causal LM, words common: from 4 to 2. causal LM, words rare: from 4 to 3."
    ended = pd.DataFrame(rows[:4]).assign(update=[0, 0, -1, -1], trained=[False, False, True, True])
    assert plot(ended, table_name="my-loss").answer.startswith("Most: ")  # an untrained control is not an earlier time
