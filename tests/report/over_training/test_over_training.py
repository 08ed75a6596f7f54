"""The section over training: numbers of its figures are the tables', whichever tables there are."""

import base64
import json
import re
import zlib

import numpy as np
import pandas as pd
import pytest
import synthetic_course as course
from drawn import drawn_figures, drawn_section, time_axis
from whole_study import InMemory

from infoflow.report import write_report
from infoflow.results import RunFolder

pytestmark = pytest.mark.slow

FIGURES = (
    "loss-over-training",
    "phases",
    "order-over-training",
    "layers-over-training",
    "convergence",
    "convergence-times",
    "allocation-over-training",
    "heads-over-training",
    "prunable-over-training",
    "ngrams-over-training",
    "loss-by-position",
    "translation-stages",
    "source-contribution",
    "findings-over-training",
    "checkpoint-checks",
)
STEPS = course.STEPS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return course.make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def section(run):
    found = drawn_section(run, "over-training")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def figures(section):
    return {figure.id: figure for figure in section.figures}


@pytest.fixture(scope="module")
def page(run):
    return write_report(run).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn_beside(run):
    """The figures of a table beside that of layers, without which nothing is over training."""
    layers = "layer_distance_over_training"
    known = {layers: run.tables[layers]}
    return lambda name, frame: drawn_figures(InMemory(run.read(), known | {name: frame}), "over-training")


def spec_rows(panel):
    """All rows of a chart, from wherever it keeps them."""
    return [row for rows in panel.spec["datasets"].values() for row in rows]


def test_every_figure_is_drawn_in_the_order_of_the_questions(figures) -> None:
    assert tuple(figures) == FIGURES
    for figure in figures.values():
        assert figure.answer
        assert all(sentence.endswith(".") for sentence in figure.answer)
        assert figure.how_to_read
        assert figure.caption
        assert not re.search(r"\b(nan|inf|None)\b", " ".join([*figure.answer, figure.caption]))


def test_the_slider_stops_at_the_checkpoints_and_tells_their_clocks(section) -> None:
    assert section.payload["moments"] == STEPS
    assert [clock["id"] for clock in section.payload["clocks"]] == ["update", "tokens", "progress", "lr_share"]
    assert section.payload["stated"][0] == "update 0 · 0 tokens · 0% of training"  # all models read nothing
    assert section.payload["stated"][-1] == "update 5,000 · 100% of training"  # of different numbers of tokens


def test_cells_of_layers_are_means_over_seeds(run, figures) -> None:
    data = figures["layers-over-training"].data
    own = data[(data["measure"] == "information: input") & (data["series"] == "causal-lm")]
    table = run.tables["mutual_information_over_training"]
    table = table[(table["objective"] == "causal-lm") & (table["side"] == "input") & (table["regime"] == "clean")]
    expected = table.groupby(["layer", "update"])["value"].mean()
    found = own.set_index(["layer", "update"])["value"]
    pd.testing.assert_series_equal(found.sort_index(), expected.sort_index(), check_names=False)
    group = figures["layers-over-training"].payload["metrics"][0]
    (panel,) = [panel for panel in group.panels if panel.title == "causal LM"]
    low, high = data.loc[data["measure"] == "information: input", "value"].agg(["min", "max"])
    # A suspect's cells are rims, and stand apart.
    cells = [row for row in spec_rows(panel) if isinstance(row.get("value"), list)]
    drawn = {(row["layer"], u): v for row in cells for u, v in zip(row["update"], row["value"], strict=True)}
    for row in cells:
        for update in STEPS:
            assert drawn[row["layer"], update] == pytest.approx(expected[row["layer"], update], abs=(high - low) / 3000)


def test_all_panels_and_steps_of_a_measure_have_one_scale(figures) -> None:
    for group in figures["layers-over-training"].payload["metrics"]:
        *cells, profile = group.panels
        domains = [json.dumps(cell.spec["layer"][0]["encoding"]["opacity"]["scale"]["domain"]) for cell in cells]
        assert len(set(domains)) == 1
        low, high = profile.spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
        assert low < json.loads(domains[0])[0] < json.loads(domains[0])[1] < high


def test_update_0_lies_left_of_a_break_and_doublings_are_equal_steps(run) -> None:
    axis = time_axis(run)
    places = axis.places("causal-lm", [0, 1, 2, 5, 16, 28, 5000])[:, 0]
    assert places[0] == 0
    assert places[-1] == 1
    assert places[1] > 0.05
    between = axis.places("causal-lm", [1, 2, 4, 8, 16])[:, 0]
    np.testing.assert_allclose(np.diff(between), np.diff(between)[0], atol=2e-4)
    tokens = axis.places("masked-lm", STEPS)[:, 1]  # a seventh of the causal model's
    np.testing.assert_allclose(tokens, np.array(STEPS) * 200 / (5000 * 1400), atol=1e-4)
    np.testing.assert_allclose(axis.places("causal-lm", STEPS)[:, 2], np.array(STEPS) / 5000, atol=1e-4)
    rates = [course.lr_share(step) for step in STEPS]
    np.testing.assert_allclose(axis.places("causal-lm", STEPS)[:, 3], rates, atol=1e-4)


def test_convergence_is_drawn_normalised_with_the_null_on_the_same_scale(run, figures) -> None:
    data = figures["convergence"].data
    own = data[(data["similarity"] == "cka") & (data["series"] == "causal-lm") & (data["kind"] == "state")]
    table = run.tables["convergence"]
    table = table[(table["objective"] == "causal-lm") & (table["similarity"] == "cka") & (table["kind"] == "state")]
    expected = table.groupby(["layer", "update"])["normalised"].mean()
    found = own.set_index(["layer", "update"])
    pd.testing.assert_series_equal(found["value"].sort_index(), expected.sort_index(), check_names=False)
    first = table[table["update"] == 0].groupby("layer")["value"].mean()
    raw = table.groupby(["layer", "update"])["null"].mean()
    for layer, update in ((0, 0), (3, 500), (6, 5000)):
        null = (raw[layer, update] - first[layer]) / (1 - first[layer])
        assert found.loc[(layer, update), "null"] == pytest.approx(null)
    displacement = data[data["similarity"] == "displacement"]
    assert set(displacement["scale"]) == {"as it is"}
    assert displacement["value"].max() == pytest.approx(1.4)


def test_times_of_settling_and_their_order(figures) -> None:
    figure = figures["convergence-times"]
    states = figure.data[(figure.data["kind"] == "state") & (figure.data["series"] == "masked-lm")]
    assert states["time"].round().tolist() == [300 + 240 * layer for layer in range(7)]
    assert (states["before"] < states["time"]).all()
    assert (states["time"] <= states["after"]).all()
    assert "masked LM states 1.00 and blocks −1.00" in " ".join(figure.answer)


def test_roles_begin_and_end_where_the_events_say(figures) -> None:
    payload = figures["heads-over-training"].payload["live"]
    (grid,) = [grid for grid in payload["grids"] if grid["label"] == "causal LM"]
    assert (grid["layers"], grid["heads"], grid["updates"]) == (6, 8, STEPS)
    spans = {(payload["roles"][role], head): (since, until) for role, head, since, until in grid["spans"]}
    for number, role in enumerate(course.ROLES):
        since, until = spans[role, number * 8 + number]
        assert since == STEPS[8 + number]
        assert until == (STEPS[19] if number == 0 else -1)
    assert spans["first token", 3 * 8 + 7] == (0, -1)
    assert "causal LM 5 births and 1 death" in " ".join(figures["heads-over-training"].answer)


def test_numbers_of_heads_are_those_of_the_first_seed(run, figures) -> None:
    payload = figures["heads-over-training"].payload
    (grid,) = [grid for grid in payload["live"]["grids"] if grid["label"] == "translation"]
    packed = zlib.decompress(base64.b64decode(payload["blocks"][grid["id"]]))
    numbers = np.frombuffer(packed, dtype="<u2").reshape(len(grid["statistics"]), len(STEPS), 6, 8)
    table = run.tables["head_confidence_over_training"]
    table = table[(table["objective"] == "translation") & (table["seed"] == 1)]
    expected = table.pivot_table(index="update", columns=["layer", "head"], values="value").to_numpy()
    (top,) = [one["top"] for one in payload["live"]["statistics"] if one["id"] == "confidence"]
    highest = run.tables["head_confidence_over_training"].query("seed == 1")["value"].max()
    assert top == pytest.approx(highest, rel=1e-3)  # one scale for all steps and models
    shown = top * numbers[grid["statistics"].index("confidence")].reshape(len(STEPS), 48) / 2000
    np.testing.assert_allclose(shown, expected, atol=1e-3)


def test_lowest_points_of_ngrams_are_told(run, figures) -> None:
    table = run.tables["ngram_agreement_over_training"]
    table = table[(table["objective"] == "causal-lm") & (table["measure"] == "kl_from_ngram") & (table["seed"] == 1)]
    told = " ".join(figures["ngrams-over-training"].answer)
    assert "(KL(Q‖P))" in told
    groups = figures["ngrams-over-training"].payload["metrics"]
    assert [group.label for group in groups] == ["KL(Q‖P)", "KL(P‖Q)", "loss on samples of Q"]
    for order, name in ((1, "unigrams"), (2, "bigrams"), (3, "trigrams")):
        own = table[table["order"] == order].set_index("update")["value"]
        assert f"{name} at update {own.idxmin():,}" in told


VERDICTS = {
    "holds at every checkpoint": ["holds"] * 4,
    "holds since update 4": ["fails", "undetermined", "holds", "holds"],
    "held from update 1 to 4; fails since update 16": ["fails", "holds", "holds", "fails"],
    "holds since update 4 for good, first at 0": ["holds", "fails", "holds", "holds"],
    "fails since update 1": ["not testable here", "fails", "fails", "fails"],
    "undetermined at every checkpoint": ["undetermined"] * 4,
}


@pytest.fixture
def since(run, drawn_beside):
    """Since when claims hold, as the figure says it: of verdicts at updates, with their effects."""
    claim = run.tables["findings_over_training"].iloc[0].to_dict()

    def told(updates, claims):
        rows = [
            claim | {"id": f"heads:{name}", "update": update, "verdict": verdict}
            | {"effect": effect, "low": effect - 0.05, "high": effect + 0.05}
            for name, (verdicts, effects) in claims.items()
            for update, verdict, effect in zip(updates, verdicts, effects, strict=True)
        ]  # fmt: skip
        figure = drawn_beside("findings_over_training", pd.DataFrame(rows))["findings-over-training"]
        return {row["id"].removeprefix("heads:"): row["since"] for row in figure.payload["rows"]}

    return told


def test_since_when_a_claim_holds_is_told_in_words(since) -> None:
    found = since([0, 1, 4, 16], {told: (verdicts, [0.3] * 4) for told, verdicts in VERDICTS.items()})
    assert found == {told: told for told in VERDICTS}


def test_whether_an_effect_still_moves_is_told_as_in_findings_since(since) -> None:
    effects = {
        "grows": (0.1, 0.2, 0.3, 0.6),
        "stands": (0.1, 0.3, 0.3, 0.31),
        "not in one direction": (0.1, 0.2, 0.3, 0.1),
        "shrinks": (0.6, 0.5, 0.3, 0.1),
    }
    found = since([0, 100, 500, 1000], {name: (["holds"] * 4, own) for name, own in effects.items()})
    assert found["grows"].endswith("its effect still grows")
    assert found["stands"] == found["not in one direction"] == "holds at every checkpoint"
    assert found["shrinks"].endswith("its effect shrinks again")


def test_loss_removed_by_a_layer_is_the_sum_of_its_allocations_until_then(run, figures) -> None:
    figure = figures["allocation-over-training"]
    table = run.tables["allocation_steps"]
    data = figure.data
    assert [panel.title for panel in figure.panels] == ["causal LM", "masked LM", "translation"]
    for update in (0, 1000, 5000):
        for layer in (-1, 0, 5):
            own = table[(table["objective"] == "causal-lm") & (table["layer"] == layer) & (table["end"] <= update)]
            expected = -sum(own["value"]) / 2  # two seeds
            at = (data["series"] == "causal-lm") & (data["layer"] == layer) & (data["update"] == update)
            assert data.loc[at, "value"].item() == pytest.approx(expected, abs=1e-9)
    ends = data[data["update"] == 5000].groupby("series")["value"].sum()
    assert ends.tolist() == pytest.approx([-table["value"].sum() / 6] * 3)
    # Layer 5 would end higher, but has only begun.
    assert "causal LM layer 4 (" in figure.answer[0]


def test_suspects_are_drawn_hollow(figures) -> None:
    """The synthetic series have an error at one update."""
    suspect = STEPS[9]
    marks = [layer["mark"] for layer in figures["prunable-over-training"].panels[0].spec["layer"]]
    assert not any(mark.get("filled") is False for mark in marks)  # it has no row there
    spec = figures["ngrams-over-training"].panels[0].spec
    (hollow,) = [layer for layer in spec["layer"] if layer["mark"].get("filled") is False]
    rows = spec["datasets"][hollow["data"]["name"]]
    assert {row["update"] for row in rows} == {suspect}
    cells = figures["layers-over-training"].panels[0].spec
    (rim,) = [layer for layer in cells["layer"] if layer["mark"].get("stroke") == "var(--heat-2)"]
    assert {update for row in cells["datasets"][rim["data"]["name"]] for update in row["update"]} == {suspect}
    filled = next(layer for layer in cells["layer"] if layer["mark"].get("color") == "var(--heat-2)")
    assert suspect not in {update for row in cells["datasets"][filled["data"]["name"]] for update in row["update"]}


def test_verdicts_are_those_of_the_table(run, figures) -> None:
    rows = {row["id"]: row for row in figures["findings-over-training"].payload["rows"]}
    table = run.tables["findings_over_training"]
    for id, own in table.groupby("id"):
        cells = rows[id]["cells"]
        assert [(cell["update"], cell["verdict"]) for cell in cells] == list(
            own[["update", "verdict"]].itertuples(index=False, name=None)
        )
    assert rows["representations:V-1"]["since"].startswith(f"holds since update {STEPS[12]:,}")
    assert rows["representations:V-2"]["since"] == (
        f"held from update {STEPS[4]:,} to {STEPS[14]:,}; fails since update {STEPS[15]:,}"
    )


def test_errors_come_first_and_are_named_on_top(section, figures) -> None:
    rows = figures["checkpoint-checks"].payload["rows"]
    assert [row["level"] for row in rows] == ["error", "warning", "note"]
    assert rows[0]["update"] == "89"
    assert section.notes == ["Suspect checkpoints (see the last figure): causal LM 89."]


def test_two_checkpoints_and_a_suite_without_step_0_are_drawn(tmp_path) -> None:
    names = {"mutual_information_over_training", "convergence", "head_confidence_over_training"}
    two = course.make_course(tmp_path / "two", ("causal-lm",), (1,), [0, 5000], names)
    late = course.make_course(tmp_path / "late", ("causal-lm",), (1,), [1000, 2500, 5000], names)
    for run in (two, late):
        section = drawn_section(run, "over-training")
        assert section is not None
        assert not section.notes
        assert len(section.figures) == 3
    assert not time_axis(late).has_start


def test_held_out_losses_and_their_baseline_lie_on_the_axis(run, figures) -> None:
    (panel,) = figures["loss-over-training"].panels
    rows = [row for row in spec_rows(panel) if set(row) == {"series", "update", "value"}]
    table = run.tables["task_scores_over_training"]
    for row in rows:
        own = table[(table["objective"] == row["series"]) & (table["update"] == row["update"])]
        assert row["value"] == pytest.approx(own["value"].mean(), abs=1e-4)
    assert len(rows) == 3 * (len(STEPS) - 1)
    low, high = next(
        layer["encoding"]["y"]["scale"]["domain"]
        for layer in panel.spec["layer"]
        if "domain" in str(layer["encoding"].get("y"))
    )
    assert low < min(row["value"] for row in rows) < max(row["value"] for row in rows) < high


def test_curves_stand_in_the_order_of_their_middles(figures) -> None:
    (panel, *_) = figures["order-over-training"].panels
    rows = [row for row in spec_rows(panel) if "t50_before_at" in row]
    assert [row["row"].partition(",")[0].partition(" <")[0] for row in rows] == ["input", "gain", "average_similarity"]
    for row in rows:
        before, at, after = (row[f"t50{end}_at"][0] for end in ("_before", "", "_after"))
        assert before < at < after
    dots = [row for row in spec_rows(panel) if "around" in row]
    assert {(row["seed"], row["row"]) for row in dots} == {(seed, row["row"]) for seed in (1, 2) for row in rows}
    told = figures["order-over-training"].answer[0]
    assert "first input, layer 6 at update 300 (240 to 360), last gain" in told


def test_times_and_pieces_are_drawn_on_the_curves(run, figures) -> None:
    axis, figure = time_axis(run), figures["phases"]
    panel = next(panel for panel in figure.panels if "gain" in panel.title)
    assert panel.title.endswith("— abrupt")
    rows = spec_rows(panel)
    (change,) = [row for row in rows if "t50_at" in row]
    times = [change[f"{name}_at"] for name in ("t10", "t90", "t50_before", "t50", "t50_after")]
    np.testing.assert_allclose(times, axis.places("causal-lm", [500, 1000, 700 * 0.8, 700, 700 * 1.2]))
    pieces = [row for row in rows if "shade" in row and row["seed"] == 1]
    assert len(pieces) == 2
    np.testing.assert_allclose(pieces[0]["to_at"], pieces[1]["from_at"])
    assert pieces[1]["stated"] == f"updates {min(s for s in STEPS if s >= 700):,} to {STEPS[-1]:,}"
    table = run.tables["phase_curves"]
    own = table[(table["objective"] == "causal-lm") & table["curve"].str.startswith("gain")]
    drawn = {(row["seed"], row["update"]): row["value"] for row in rows if "value" in row}
    assert drawn == {(r.seed, r.update): pytest.approx(r.value, abs=1e-5) for r in own.itertuples()}


@pytest.fixture
def in_order(run, drawn_beside):
    """The order of curves of one model, of each the middle and the verdict by seeds."""
    phases = run.tables["phases"]
    causal = phases[(phases["objective"] == "causal-lm") & (phases["verdict"] == "abrupt")].iloc[0].to_dict()

    def drawn(**curves):
        rows = [
            causal | {"model": f"causal-lm/seed-{seed}", "table": "t", "curve": name, "seed": seed, "verdict": verdict}
            | {f"{at}{end}": time * by for at in ("t10", "t50", "t90")
               for end, by in (("", 1.0), ("_before", 0.8), ("_after", 1.2))}
            for name, seeds in curves.items() for seed, (time, verdict) in enumerate(seeds)
        ]  # fmt: skip
        return drawn_beside("phases", pd.DataFrame(rows))["order-over-training"]

    return drawn


def test_seeds_that_differ_are_told_apart_and_bounds_count_for_no_median(run, in_order) -> None:
    late = [(1000, "abrupt"), (1000, "abrupt"), (1000, "abrupt")]
    differ = [(10, "abrupt"), (20, "gradual"), (900, "unfinished")]
    figure = in_order(x=differ, y=late, z=[(900, "unfinished"), (800, "unfinished")])
    (panel,) = figure.panels
    ends = {row["row"]: row["end"] for row in spec_rows(panel) if "end" in row}
    assert ends == {"x · t": "1 abrupt, 1 gradual, 1 unfinished", "y · t": "abrupt", "z · t": "unfinished"}
    assert figure.answer[0] == "causal LM: first x at update 15 (8 to 24), last y at update 1k (800 to 1.2k)."
    (bound,) = [row for row in spec_rows(panel) if row.get("row") == "z · t" and "t50_before_at" in row]
    assert bound["t50_at"] == pytest.approx(time_axis(run).places("causal-lm", [850])[0], abs=1e-4)


@pytest.mark.parametrize(
    ("times", "known"),
    [
        ((30, 30, 15), 1),  # brackets overlap in one seed
        ((30, 13, 15), 0),  # in two
        ((30, 40, 2), 0),  # another order
    ],
)
def test_an_order_is_known_where_every_seed_has_it(in_order, times, known) -> None:
    one, other = ([(time, "abrupt") for time in own] for own in ((10, 12, 14), times))
    told = "Pairs of curves in the same order in every seed, with overlapping checkpoints in at most one seed: "
    assert in_order(x=one, y=other).answer[-1] == f"{told}causal LM {known} of 1."
    assert in_order(x=other, y=one).answer[-1] == f"{told}causal LM {known} of 1."


def test_a_table_that_cannot_be_read_leaves_out_its_figure_alone(run, tmp_path) -> None:
    names = {"mutual_information_over_training", "head_confidence_over_training"}
    damaged = course.make_course(tmp_path, ("causal-lm",), (1,), tables=names)
    rows = [{**course.at("causal-lm", 1, step), "kind": "state", "layer": 0} for step in STEPS]
    course.write(damaged, "convergence", rows)
    with pytest.warns(UserWarning, match="leaves out the figure over-training/convergence"):
        section = drawn_section(damaged, "over-training")
    assert section is not None
    assert [figure.id for figure in section.figures] == ["layers-over-training", "heads-over-training"]
    assert any("leaves out the figure over-training/convergence" in note for note in section.notes)


def test_text_of_tables_is_escaped(page) -> None:
    assert course.EVIL_NAME not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_section_adds_little_more_than_a_megabyte(page, tmp_path) -> None:
    bare = RunFolder(tmp_path)
    bare.update(kind="study", title="Nothing")
    assert len(page.encode()) - len(write_report(bare).read_bytes()) < 1_100_000
