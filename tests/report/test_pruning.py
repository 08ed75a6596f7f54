"""The section on pruning: sentences from the data, curves that agree with the tables, stacks, what is left out."""

import re

import pandas as pd
import pytest
from drawn import drawn_section
from pruning.synthetic import Sweeps, write_run
from synthetic_run import write_again

from infoflow.report import write_report
from infoflow.results import RunFolder

pytestmark = pytest.mark.slow

ANSWERS = {
    "pruning-quality": "In translation, 77% of encoder heads can go before BLEU is 0.5 worse (learned gates; in random",
    "pruning-kinds": "With 21 of 48 heads of translation left, the share left is highest in cross-attention, 62.5%",
    "pruning-functions": "With 6 of 16 heads left, translation holds 100% of its functions, compared with the 51% that",
    "pruning-scratch": "The pruned model's advantage is highest for encoder heads of translation, 0.8",
    "pruning-gates": "the share of undecided gates is 0.00% for encoder heads of translation",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("pruned"), Sweeps())


@pytest.fixture(scope="module")
def figures(run):
    return _figures(run)


@pytest.fixture(scope="module")
def page(run) -> str:
    return write_report(run).read_text(encoding="utf-8")


def _figures(run):
    section = drawn_section(run, "pruning")
    assert section is not None
    return {figure.id: figure for figure in section.figures}


def test_every_question_is_answered_from_the_data(figures) -> None:
    assert list(figures) == list(ANSWERS)
    for name, start in ANSWERS.items():
        assert start in figures[name].words, figures[name].words
        assert figures[name].question.endswith("?")
        assert re.search(r"\d", figures[name].caption)


def test_curves_are_means_over_seeds_with_random_choices_as_control(run, figures) -> None:
    data, table = figures["pruning-quality"].data, run.tables["pruning"]
    own = table[
        (table["method"] == "importance")
        & (table["scope"] == "all")
        & (table["metric"] == "loss")
        & (table["point"] == 3)
    ]
    row = data[(data["scope"] == "all") & (data["way"] == "importance") & (data["metric"] == "loss")]
    row = row[row["point"] == 3].iloc[0]
    assert row["value"] == pytest.approx(own["value"].mean(), abs=1e-4)
    assert (row["left"], row["size"]) == (18, 48)
    assert row["low"] < row["value"] < row["high"]
    drawn = table[(table["method"] == "random") & (table["scope"] == "encoder-self")]
    drawn = drawn[(drawn["metric"] == "bleu") & (drawn["point"] == 2)]
    band = data[(data["scope"] == "encoder-self") & (data["way"] == "random") & (data["metric"] == "bleu")]
    band = band[band["point"] == 2].iloc[0]
    assert band["low"] < drawn["value"].mean() < band["high"]  # an interval of the mean, not the range
    assert set(data["unpruned"].round(6)) == {30.0, 2.0}
    assert "sacreBLEU signature: nrefs:1|case:lc" in figures["pruning-quality"].caption


def test_shares_by_kind_agree_with_the_table(run, figures) -> None:
    data, heads = figures["pruning-kinds"].data, run.tables["pruned_heads"]
    own = heads[(heads["method"] == "hard-concrete") & (heads["scope"] == "all") & (heads["point"] == 2)]
    own = own[own["kind"] == "cross"]
    for layer, rows in own.groupby("layer"):
        cell = data[(data["point"] == 2) & (data["name"] == "cross-attention") & (data["layer"] == layer)].iloc[0]
        assert cell["share"] == pytest.approx(rows["alive"].mean(), abs=1e-4)
        assert cell["alive"] == pytest.approx(4 * rows["alive"].mean(), abs=1e-3)
    assert set(data["size"]) == {48}


def test_each_head_that_is_left_is_a_cell_in_the_stack_of_its_function(figures) -> None:
    figure = figures["pruning-functions"]
    titles = ["translation, encoder self-attention", "translation, functions left"]
    assert [panel.title for panel in figure.panels] == titles
    data = figure.data
    assert data.groupby("point").size().tolist() == [16, 16, 13, 9, 6, 3, 1]
    for _, stack in data.groupby("point"):
        assert stack["place"].tolist() == list(range(len(stack)))
        order = [list(FUNCTIONS).index(name) for name in stack["function"]]
        assert order == sorted(order)
    first = data[data["point"] == -1].set_index(["layer", "head"])
    assert first.loc[(0, 3), "function"] == "rare token"
    assert first.loc[(3, 3), ["function", "tendency", "strength"]].tolist() == ["none of these", "none of these", 0.0]
    spec = figure.panels[0].spec
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [-1, *range(6)]  # also points without heads
    cells = next(rows for rows in spec["datasets"].values() if "shade" in rows[0])
    assert len(cells) == len(data)
    assert {cell["shade"] for cell in cells} == {0.15, 1.0}
    chance = next(rows for rows in spec["datasets"].values() if set(rows[0]) == {"point", "place"})
    assert [row["place"] for row in chance] == [8, 8, 6.5, 4.5, 3, 1.5, 0.5]  # half of the heads hold a function


FUNCTIONS = ("positional", "syntactic", "rare token", "none of these")


def test_shares_by_kind_have_bands_over_seeds(run, tmp_path) -> None:
    stored = run.tables.stored("pruned_heads")
    swept = stored.frame["method"].eq("hard-concrete") & stored.frame["scope"].eq("all") & stored.frame["point"].eq(2)
    frame = stored.frame.copy()
    frame.loc[swept & frame["seed"].eq(1) & frame["kind"].eq("cross") & frame["layer"].eq(0), "alive"] = False
    uneven = RunFolder(tmp_path)
    uneven.update(**run.read())
    write_again(uneven, frame, stored.schema)
    figure = _figures(uneven)["pruning-kinds"]
    own = frame[swept & frame["kind"].eq("cross")]
    left = frame[swept].groupby("seed")["alive"].sum().mean()
    rows = next(rows for rows in figure.panels[0].spec["datasets"].values() if {"name", "low"} <= set(rows[0]))
    row = next(row for row in rows if row["name"] == "cross-attention")
    place = next(i for i, shown in enumerate(row["left"]) if abs(shown - left) < 0.06)
    found = row["low"][place], row["high"][place]
    mean = 100 * own.groupby("seed")["alive"].mean().mean()
    assert found[0] + 10 < found[1] <= 100
    assert found[0] < mean < found[1]
    assert "with 95% intervals over seeds (bands)" in figure.caption


def test_a_single_point_from_scratch_has_whiskers(run, figures, tmp_path) -> None:
    stored = run.tables.stored("pruning")
    frame = stored.frame[(stored.frame["method"] != "scratch") | (stored.frame["point"] == 2)]
    single = RunFolder(tmp_path)
    single.update(**run.read())
    write_again(single, frame, stored.schema)
    marks = {}
    for name, drawn, intervals in (("several", figures, "bands"), ("single", _figures(single), "whiskers")):
        spec = drawn["pruning-scratch"].panels[0].spec
        assert f"with 95% intervals over seeds and sentences ({intervals})" in drawn["pruning-scratch"].caption
        marks[name] = [layer["mark"]["type"] for layer in spec["layer"] if "y2" in layer["encoding"]]
    assert marks == {"several": ["area", "area"], "single": ["rule", "rule"]}


def test_difference_to_scratch_is_paired(run, figures) -> None:
    table = run.tables["pruning"]
    table = table[(table["metric"] == "bleu") & (table["scope"] == "encoder-self")]
    table = table[table["method"].isin(["hard-concrete", "scratch"])]
    wide = table.pivot(index=["seed", "point"], columns="method", values="value").dropna()
    wide = wide[wide.index.get_level_values("point") > 0]
    gap = (wide["hard-concrete"] - wide["scratch"]).mean()
    assert f"for encoder heads of translation, {gap:.2f}"[:-1] in figures["pruning-scratch"].words


def test_what_was_trained_on_stands_beside_random_and_all_heads(tmp_path) -> None:
    run = write_run(tmp_path, Sweeps(recovers=True, scopes=("encoder-self",)), judged=False)
    figure = _figures(run)["pruning-recovered"]
    table = run.tables["pruning"].query("metric == 'bleu'")
    wide = table.pivot_table(index=["seed", "point"], columns="method", values="value")
    own = wide.loc[wide.index.get_level_values("point") > 0]
    better = (own["recovered"] - own["recovered-random"]).mean()
    whole = {way: table[table["method"] == way]["value"].mean() for way in ("unpruned", "recovered-all")}
    gained, behind = own["recovered"].mean() - whole["unpruned"], whole["recovered-all"] - own["recovered"].mean()
    (answer,) = figure.answer
    assert answer.startswith(
        "Encoder heads of translation: with 1 to 13 of 16 left and trained further (means over 5 points)"
    )
    for gap, than in ((better, "better than as many random heads"), (gained, "better than the unpruned model")):
        assert re.search(rf"{gap:.2f}"[:-1] + rf"\S* BLEU \([^)]+\) {than}", answer), answer
    assert re.search(rf"{behind:.2f}"[:-1] + r"\S* BLEU \([^)]+\) worse than all heads", answer), answer
    assert figure.findings == ("heads:H2",)
    spec = figure.panels[0].spec
    texts = {str(value) for rows in spec["datasets"].values() for row in rows for value in row.values()}
    assert [layer["mark"]["type"] for layer in spec["layer"]].count("rule") == 2  # before, and all heads
    ways = ("● trained further", "– – random heads, trained further", "— — all heads, trained further")
    assert {"■ as pruned", *ways} <= texts
    assert "recovered" not in set(_figures(run)["pruning-quality"].data["way"])


def test_points_that_a_seed_lacks_are_in_no_mean(run, tmp_path) -> None:
    stored = run.tables.stored("pruning")
    gone = stored.frame["method"].eq("scratch") & stored.frame["point"].eq(1) & stored.frame["seed"].ne(1)
    other = RunFolder(tmp_path)
    other.update(**run.read())
    write_again(other, stored.frame[~gone], stored.schema)
    figure = _figures(other)["pruning-scratch"]
    assert set(figure.data["point"]) == {2, 3, 4, 5}
    assert set(figure.data["seeds"]) == {3}


def test_names_of_roles_and_methods_are_escaped(tmp_path) -> None:
    evil = "<script>alert(1)</script>"
    roles = {evil: ((0, 0),), "rarest token": ((1, 1),)}
    own = {"metrics": ("loss",), "methods": ("hard-concrete",), "scopes": ("encoder-self",), "keeps_roles": False}
    run = write_run(tmp_path, Sweeps(seeds=(0,), roles=roles, **own), judged=False)  # lost roles are named
    page = write_report(run).read_text(encoding="utf-8")
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_unpruned_model_s_own_rows_are_no_curve(run, tmp_path) -> None:
    stored = run.tables.stored("pruning")
    first = stored.frame[(stored.frame["point"] == 0) & (stored.frame["method"] == "random")]
    more = pd.concat([stored.frame, first.assign(method="unpruned", point=-1)], ignore_index=True)
    other = RunFolder(tmp_path)
    other.update(**run.read())
    write_again(other, more, stored.schema)
    assert "unpruned" not in set(_figures(other)["pruning-quality"].data["way"])
