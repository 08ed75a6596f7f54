"""A further checkpoint, architecture, start or variant in any table: the page shows what it did, or says why not."""

import numpy as np
import pandas as pd
import pytest
import whole_study
from drawn import ModelSelection, drawn_figures, shown_tables, tell
from synthetic_run import write_again
from whole_study import OTHERS, InMemory

from infoflow.report import write_report
from infoflow.results import END, RunFolder, with_keys

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(whole) -> InMemory:
    return whole


@pytest.fixture(scope="module")
def figures(whole_story):
    return {figure.id: figure for figure in whole_story.figures}


@pytest.fixture(scope="module")
def before(run):
    """The tables without a further model."""
    return shown_tables(run)


def changed(run: InMemory, other: str, names=None) -> InMemory:
    tables = {
        name: whole_study.with_another(frame, OTHERS[other])
        if whole_study.keyed(frame) and (names is None or name in names)
        else frame
        for name, frame in run.tables.items()
    }
    return InMemory(run.read(), tables)


def test_the_study_has_every_table_that_the_page_draws(run, figures) -> None:
    assert {name for figure in figures.values() for name in figure.tables} <= set(run.tables)
    assert len(figures) > 35


@pytest.mark.parametrize("other", OTHERS)
def test_every_table_keeps_its_rows_or_is_refused(run, before, other) -> None:
    """A variant is a line of its own."""
    names = [name for name, frame in run.tables.items() if whole_study.keyed(frame)]
    after = shown_tables(changed(run, other))
    for name in names:
        if other == "name":
            assert name not in after
            assert any(f"Not drawn: the table {name}." in note for note in after.notes())
            continue
        rows = after[name]
        for side in [side for side in ("", "_a", "_b") if f"series{side}" in rows]:
            rows = rows[rows[f"series{side}"].isin([series.key for series in before.models.series])]
        pd.testing.assert_frame_equal(rows, before[name])
        assert other == "variant" or "Not drawn: " in after.notes()[0]


def test_no_figure_moves(run, figures) -> None:
    """With a checkpoint and a start in every table at once."""
    more = changed(changed(run, "checkpoint"), "start")
    story = tell(more)
    assert not story.left_out
    assert [figure.id for figure in story.figures] == list(figures)
    for figure in story.figures:
        pd.testing.assert_frame_equal(figure.data, figures[figure.id].data)
        assert figure.answer == figures[figure.id].answer
        assert [panel.spec for panel in figure.panels] == [panel.spec for panel in figures[figure.id].panels]
    assert all(len(section.notes) == 1 for section in story.sections if section.id != "alignment")


def second_architecture(run: InMemory) -> InMemory:
    """The study, and all of it again on another architecture, whose values and layers are twice as many."""
    tables = {}
    for name, frame in run.tables.items():
        if whole_study.keyed(frame):
            frame = with_keys(frame)
            sides = [side for side in ("", "_a", "_b") if f"architecture{side}" in frame]
            frame = frame.assign(**{f"architecture{side}": "bert" for side in sides})
            named = {f"model{side}": frame[f"model{side}"] + "-on-albert" for side in sides}
            doubled = {column: 2 * frame[column] for column in ("layer", "value", "low", "high") if column in frame}
            if "replicates" in frame:
                doubled["replicates"] = [None if each is None else 2 * np.asarray(each) for each in frame["replicates"]]
            other = frame.assign(**named, **doubled, **{f"architecture{side}": "albert" for side in sides})
            frame = pd.concat([frame, other], ignore_index=True)
        tables[name] = frame
    return InMemory(run.read(), tables)


PER_ARCHITECTURE = {"mi-input", "identity", "layer-change", "change-by-rank", "average-similarity"}
FOR_ONE = {"mi-plane", "head-relevance", "heads-removed"}


@pytest.fixture(scope="module")
def two_architectures(run, figures):
    """The story of the tables behind some figures."""
    needed = {name for figure in figures.values() if figure.id in PER_ARCHITECTURE | FOR_ONE for name in figure.tables}
    kept = {name: run.tables[name] for name in ("training_runs", "task_scores", *needed)}
    return tell(second_architecture(InMemory(run.read(), kept)))


def test_two_architectures_have_a_panel_each_on_the_same_axes(two_architectures, figures) -> None:
    story = two_architectures
    assert not story.left_out
    assert {figure.id for figure in story.figures} <= set(figures)
    drawn = {
        figure.id: figure for figure in story.figures if figure.panels and figure.panels[-1].title.endswith("albert")
    }
    assert set(drawn) >= PER_ARCHITECTURE
    for figure in drawn.values():
        before = figures[figure.id]
        assert len(figure.panels) == 2 * len(before.panels)
        assert [panel.title.split(", ")[-1] for panel in figure.panels[:2]] == ["bert", "albert"]
        assert figure.numbers[: len(before.numbers)] == before.numbers
        assert figure.answer[-1].startswith("albert: ")
        first = figure.data[figure.data["architecture"] == "bert"].drop(columns="architecture").reset_index(drop=True)
        pd.testing.assert_frame_equal(first, before.data.reset_index(drop=True))
    for key in ("x", "y"):
        panels = [panel.spec["layer"] for panel in drawn["layer-change"].panels]
        domains = [
            next(own["scale"]["domain"] for layer in layers if "scale" in (own := layer["encoding"].get(key, {})))
            for layers in panels
        ]
        assert domains[0] == domains[1]
    assert max(drawn["layer-change"].data["from_layer"]) == 2 * max(figures["layer-change"].data["from_layer"])


def test_what_another_architecture_has_and_no_panel_shows_is_said(two_architectures) -> None:
    notes = {section.id: section.notes for section in two_architectures.sections}
    question = "Do models give up the input in exchange for the output?"
    assert f"the architecture albert in “{question}”" in notes["knows"][0]
    assert notes["changes"] == []
    assert notes["heads"] == ["Not drawn: the architecture albert."]


def test_an_objective_looks_the_same_under_every_architecture(run) -> None:
    more = second_architecture(run)
    first, second = (ModelSelection.of(more, name) for name in ("", "albert"))
    assert first.further == ("albert",)
    assert first.series == second.series
    assert set(first.lines).isdisjoint(second.lines)


def test_a_variant_is_a_line_beside_the_others(run, before, figures) -> None:
    story = tell(changed(run, "variant"))
    assert not story.left_out
    assert [figure.id for figure in story.figures] == list(figures)
    lines = [series.key for series in before.models.series]
    for figure in story.figures:
        alone = figures[figure.id].data
        if "series" in alone and "group" in alone:
            own = figure.data[figure.data["series"].isin(lines)].reset_index(drop=True)
            alone = alone[alone["series"].isin(lines)].reset_index(drop=True)
            pd.testing.assert_frame_equal(own, alone)


def test_two_models_of_one_seed_leave_sentences_instead_of_figures(run) -> None:
    story = tell(changed(run, "name"))
    assert [figure.id for figure in story.figures if "alignment" not in figure.id] == []
    for section in story.sections:
        assert section.id == "alignment" or "there are several: model" in section.notes[0]


def test_the_page_says_what_it_does_not_draw(study, tmp_path) -> None:
    run = RunFolder(tmp_path)
    run.update(**study.read())
    for name, other in (("identity_neighbours", "name"), ("layer_distance", "checkpoint"), ("task_scores", "start")):
        stored = study.tables.stored(name)
        write_again(run, whole_study.with_another(stored.frame, OTHERS[other]), stored.schema)
    page = write_report(run).read_text(encoding="utf-8")
    notes = [part.split("<")[0] for part in page.split('<p class="small">')]
    told = [note for note in notes if note.startswith("Not drawn")]
    assert told[0].startswith("Not drawn: the table identity_neighbours. One model for each objective")
    assert told[1:] == [
        "Not drawn: the state after 500 updates.",
        "Not drawn: models that began from causal-lm/seed-1.",
    ]
    assert 'id="identity"' not in page
    assert 'id="layer-change"' in page


def test_alignments_to_two_targets_are_refused(run) -> None:
    frame = run.tables["alignment"]
    other = frame.assign(target_model="translation+other/seed-1", value=frame["value"] * 1000)
    both = InMemory(run.read(), {**run.tables, "alignment": pd.concat([frame, other], ignore_index=True)})
    ours, theirs = (drawn_figures(each, "alignment")["alignment-scores"].data for each in (run, both))
    pd.testing.assert_frame_equal(ours, theirs)
    unknown = frame.assign(target_model=frame["target_model"].str.replace("translation", "x"))
    twice = pd.concat([unknown, unknown.assign(target_model="y")], ignore_index=True)
    (section,) = tell(InMemory(run.read(), {"task_scores": run.tables["task_scores"], "alignment": twice})).sections[:1]
    assert section.id == "alignment"
    assert "One target must be chosen for each source" in section.notes[-1]
    assert section.figures == []


def test_verdicts_elsewhere_stand_beside_the_first(run) -> None:
    frame = run.tables["findings"].assign(architecture="bert", update=END)
    elsewhere = frame.head(1).assign(architecture="albert", update=500, verdict="fails", effect=0.2, low=0.1, high=0.3)
    both = pd.concat([frame, elsewhere], ignore_index=True)
    found = tell(InMemory(run.read(), {"findings": both})).findings
    assert len(found) == len(frame)
    assert found[0].elsewhere == "albert, after 500 updates: ✗ fails (0.20)"
    assert {finding.elsewhere for finding in found[1:]} == {""}
