"""The section on tuning: sentences and pictures from the data, controls, what is missing, text that is escaped."""

import adapted
import numpy as np
import pandas as pd
import pytest
from drawn import assert_explained, drawn_figures, drawn_section
from findings.adapted_tables import GUESS, HOSTILE, SINGLE, TASKS, Adapted

from infoflow.adaptation import head_overlap
from infoflow.foundation import NUM_REPLICATES, interval_over_seeds, stream
from infoflow.report import write_report
from infoflow.results import RunFolder

pytestmark = pytest.mark.slow

SOME = ("causal-lm", "masked-lm")
ONE = Adapted(seeds=(1,), tuning_seeds=(0, 1), objectives=("masked-lm",))
NOT_SURPRISING = ("tuned-domain", "tuning-weights", "tuned-heads", "tuned-flipped")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return adapted.write_run(tmp_path_factory.mktemp("adapted"))


@pytest.fixture(scope="module")
def section(run):
    found = drawn_section(run, "adaptation")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def figures(section):
    return {figure.id: figure for figure in section.figures}


@pytest.fixture(scope="module")
def page(run):
    return write_report(run)


@pytest.fixture(scope="module")
def given():
    """The tables of one masked language model, of one seed."""
    return ONE.tables()


@pytest.fixture
def alone(tmp_path, given):
    """The figures of one of these tables, changed."""
    run = adapted.write_run(tmp_path, ONE, only=("task_answers",))

    def drawn(name, change):
        adapted.write_table(run, name, change(given[name]))
        return drawn_figures(run, "adaptation")

    return drawn


def strings(panel) -> set[str]:
    """All text that a picture draws."""
    rows = [row for rows in panel.spec["datasets"].values() for row in rows]
    return {str(value) for row in rows for value in row.values()}


def rows_of(panel, **wanted) -> list[dict]:
    rows = [row for rows in panel.spec["datasets"].values() for row in rows]
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def test_figures_come_in_order(figures) -> None:
    assert list(figures) == [
        "tuned-scores",
        "tuned-ways",
        "tuned-worth",
        "tuned-domain",
        "tuning-change",
        "tuning-weights",
        "label-by-layer",
        "information-after-tuning",
        "probes-after-tuning",
        "layer-swaps",
        "single-blocks",
        "tuning-learned",
        "tuned-heads",
        "head-overlap",
        "tuned-pruning",
        "tuned-flipped",
    ]


def test_every_figure_says_how_to_read_it_and_how_it_was_made(figures) -> None:
    assert_explained(figures.values(), NOT_SURPRISING)


def test_scores_stand_beside_from_scratch_and_a_guess(run, figures) -> None:
    figure, table = figures["tuned-scores"], run.tables["tuned_scores"]
    assert [panel.title for panel in figure.panels] == [f"mean over {len(TASKS)} tasks"]
    own = table[(table["part"] == "test") & table["main"] & (table["method"] == "full") & (table["examples"] == 1000)]
    own = own[(own["strategy"] == "as-is") & (own["control"] == "")]
    means = own.groupby(["objective", "task", "trained"])["value"].mean()
    for (objective, task, trained), mean in means.items():
        drawn = figure.data[(figure.data["series"] == objective) & (figure.data["task"] == task)]
        group = "trained" if trained else "untrained"
        assert drawn.loc[drawn["group"] == group, "value"].item() == pytest.approx(mean)
        assert drawn["baseline"].to_numpy() == pytest.approx(GUESS[task])
    assert figure.answer[0].startswith("On opinions, masked LM is best, 0.75")
    crosses = [layer for layer in figure.panels[0].spec["layer"] if layer["mark"].get("shape") == "cross"]
    assert len(crosses) == 1
    assert "and 0.15" in figure.answer[-1]


def grey_marks(panel) -> dict[str, str]:
    """What controls are called under the pointer, by their shape."""
    layers = [layer for layer in panel.spec["layer"] if layer["mark"].get("color") == "var(--control)"]
    return {
        layer["mark"]["shape"]: layer["encoding"]["tooltip"][0]["title"] for layer in layers if "shape" in layer["mark"]
    }


def test_shuffled_labels_are_a_control_of_their_own(run, figures, alone) -> None:
    figure, table = figures["tuned-scores"], run.tables["tuned_scores"]
    own = table[(table["part"] == "test") & table["main"] & (table["control"] == "shuffled-labels")]
    for (objective, task), mean in own.groupby(["objective", "task"])["value"].mean().items():
        drawn = figure.data[(figure.data["series"] == objective) & (figure.data["task"] == task)]
        assert drawn.loc[drawn["group"] == "shuffled labels", "value"].item() == pytest.approx(mean)
    assert len(figure.data) == 3 * 2 * (len(TASKS) + 1)  # and the average
    for panel in figure.panels:
        assert grey_marks(panel) == {"cross": "from scratch", "triangle-down": "shuffled labels"}
        assert {"✚ from scratch", "▼ shuffled labels", "┆ best guess"} <= strings(panel)
    assert "shuffled labels" in figure.how_to_read[2]
    without = alone("tuned_scores", lambda frame: frame[frame["control"] == ""])["tuned-scores"]
    assert grey_marks(without.panels[0]) == {"cross": "from scratch"}
    assert "▼ shuffled labels" not in strings(without.panels[0])
    assert not any("triangle" in text for text in without.how_to_read)
    bare = alone("tuned_scores", lambda frame: frame[(frame["control"] == "") & frame["trained"]])["tuned-scores"]
    assert grey_marks(bare.panels[0]) == {}
    assert "┆ best guess" not in strings(bare.panels[0])


def test_change_on_shuffled_labels_is_a_grey_row(alone) -> None:
    def shuffled(frame):
        less = frame[frame["trained"]].assign(control="shuffled-labels")
        return pd.concat([frame, less.assign(**{name: less[name] / 2 for name in ("value", "low", "high")})])

    figure = alone("tuning_change", shuffled)["tuning-change"]
    own = figure.data[(figure.data["group"] == "trained") & (figure.data["measure"] == "cka")]
    for layer, mean in own.groupby("layer")["value"].mean().items():
        (cell,) = rows_of(figure.panels[0], label="shuffled labels", place=str(layer), set=1)
        assert cell["grey"]
        assert cell["value"] == pytest.approx(mean / 2)
    assert len(rows_of(figure.panels[0], label="from scratch", set=1)) == 5
    assert figure.caption.endswith(
        "Last rows: the untrained model after tuning and tuning on shuffled labels, mean over tasks."
    )


def test_systems_are_rows_and_tasks_columns_with_their_average(figures) -> None:
    figure = figures["tuned-scores"]
    assert figure.payload["columns"] == [*(f"{task} (1,000)" for task in TASKS), "average"]
    rows = {row["label"]: row["cells"] for row in figure.payload["rows"]}
    assert list(rows) == ["causal LM", "masked LM", "from scratch", "shuffled labels", "best guess"]
    data = figure.data.set_index(["name", "group", "task"]).sort_index()
    for place, task in enumerate([*TASKS, "average"]):
        row = data.loc[("masked LM", "trained", task)]
        cell = rows["masked LM"][place]
        assert cell["value"] == f"{row['value']:.2f}"
        assert cell["interval"] == f"{row['low']:.2f} to {row['high']:.2f}"
        scratch = data.xs(("untrained", task), level=("group", "task"))["value"].mean()
        assert float(rows["from scratch"][place]["value"]) == pytest.approx(scratch, abs=0.006)
    mean = data.loc["masked LM", "trained"].loc[list(TASKS), "value"].mean()
    assert data.loc[("masked LM", "trained", "average"), "value"] == pytest.approx(mean)
    assert [cell["best"] for cell in rows["masked LM"]] == [True] * (len(TASKS) + 1)
    assert not any(cell["best"] for label in ("from scratch", "best guess") for cell in rows[label])


def test_frozen_and_full_general_and_domain_are_rows_of_one_table(figures) -> None:
    figure = figures["tuned-ways"]
    ways = [(row["label"], row["more"]) for row in figure.payload["rows"]]
    assert ("masked LM", "domain alone: all weights") in ways
    assert ways[-1] == ("best guess", "")
    assert figure.payload["columns"] == [*TASKS, "average"]
    assert [panel.title for panel in figure.panels] == ["causal LM", "masked LM"]
    assert {"general: frozen features", "general: all weights", "domain alone: all weights"} <= strings(
        figure.panels[1]
    )
    assert "over frozen features is 0.0" in figure.answer[1]
    assert "“continued on the domain” differs from “general” by 0.02" in figure.answer[1]


@pytest.mark.parametrize(
    ("reached", "told"),
    [
        (0.5, "450 in masked LM (8.9 times as many)"),  # √(200 · 1000): half of the way over the logarithm
        (0.6, "1,000 in masked LM (20 times as many)"),
        (0.9, "more than 1,000 in masked LM (over 20 times as many)"),
        (0.1, "50 in masked LM (no more)"),
    ],
)
def test_what_pretraining_is_worth_is_read_off_the_other_curve(alone, reached, told) -> None:
    def scored(frame):
        curve = frame["examples"].map({50: 0.2, 200: 0.4, 1000: 0.6})
        return frame.assign(value=curve.where(~frame["trained"], reached))

    (_, of_tags, _) = alone("tuned_scores", scored)["tuned-worth"].answer
    assert of_tags == f"On tags, 50 labelled examples after pretraining match, from scratch, {told}."


def test_loss_and_score_over_strategies(figures) -> None:
    figure = figures["tuned-domain"]
    assert figure.answer == [
        "In masked LM, “continued on the domain” has the lowest loss (4.50), and “domain alone” the best mean score "
        "(0.73).",
        "On 0 of 3 tasks, every lower loss goes with a better score.",
    ]
    assert sorted(figure.data["strategy"].unique()) == ["as-is", "continued", "scratch"]


def test_layers_are_squares_with_a_set_for_each_measure(run, figures) -> None:
    figure = figures["tuning-change"]
    assert figure.payload["sets"] == ["PWCCA", "linear CKA", "RSA"]
    table = run.tables["tuning_change"]
    own = table[(table["objective"] == "masked-lm") & table["trained"] & (table["measure"] == "cka")]
    means = own.groupby(["task", "layer"])["value"].mean()
    for (task, layer), mean in means.items():
        (cell,) = rows_of(figure.panels[1], label=task, place=str(layer), set=1)
        assert cell["value"] == pytest.approx(mean)
        assert "between seeds 0.01" in cell["shown"]
    assert len(rows_of(figure.panels[1], label="from scratch", set=0)) == 5
    assert "the upper half of the layers moved 0.17" in figure.answer[1]


def test_weights_are_told_in_percent_of_their_norm(run, figures) -> None:
    table = run.tables["tuning_weights"]
    own = table[(table["objective"] == "masked-lm") & (table["layer"] == 3)]
    mean = own.groupby("component")["relative"].mean()
    cell = rows_of(figures["tuning-weights"].panels[1], label="block 3", place="query", set=0)[0]
    assert cell["value"] == pytest.approx(mean["query"])
    assert figures["tuning-weights"].answer[1].startswith("In masked LM, the block that moved furthest is 3 (")


def test_labels_after_tuning_stand_beside_before_and_untrained(figures) -> None:
    figure = figures["label-by-layer"]
    assert {"untuned", "untrained", "majority class", "masked LM"} <= strings(figure.panels[0])
    assert figure.answer[0].startswith("The label of opinions, read from the top layer after tuning: causal LM 0.80")


def test_differences_of_probes_are_paired(run, figures) -> None:
    means = figures["probes-after-tuning"].data
    own = means[(means["series"] == "masked-lm") & (means["probe"] == "position") & (means["layer"] == 4)]
    table = run.tables["probes_after_tuning"]
    rows = table[(table["objective"] == "masked-lm") & (table["probe"] == "position") & (table["layer"] == 4)]
    for row in own.itertuples():
        of_task = rows[rows["task"] == row.task].pivot(index="seed", columns="state", values="value")
        assert row.value == pytest.approx((of_task["after"] - of_task["before"]).mean())
        assert row.low < row.value < row.high < 0


def test_information_stands_before_and_after(figures) -> None:
    figure = figures["information-after-tuning"]
    assert {f"{task}: {what}" for task in ("opinions", "tags") for what in ("the label", "the token that is read")} <= {
        panel.title for panel in figure.panels
    }
    data = figure.data[(figure.data["task"] == "opinions") & (figure.data["metric"] == "information about the input")]
    by_state = data[data["series"] == "masked-lm"].set_index(["group", "layer"])["value"]
    for layer in range(5):
        assert by_state["trained", layer] == pytest.approx(0.9 - 0.2 * layer, abs=0.05)
        assert by_state["untuned", layer] == pytest.approx(0.9 - 0.1 * layer, abs=0.05)
    start = "After tuning for opinions, information about the token that is read in the top layer: "
    (said,) = [text for text in figure.answer if text.startswith(start)]
    assert " less in masked LM" in said


def test_single_blocks_taken_back_stand_beside_none(run, figures) -> None:
    figure, table = figures["single-blocks"], run.tables["layer_swaps"]
    assert [panel.title for panel in figure.panels] == ["causal LM", "masked LM"]
    assert figure.payload["sets"] == ["change of the task's score", "pretraining loss regained (nats per token)"]
    own = table[(table["objective"] == "masked-lm") & (table["task"] == "tags") & table["trained"]]
    for quantity, sign in (("score", 1), ("pretraining-loss", -1)):
        rows = own[own["quantity"] == quantity]
        none = rows[rows["rewound"] == "none"].set_index("seed")["value"]
        for layer, change in enumerate(SINGLE[quantity]):
            single = rows[(rows["rewound"] == "one") & (rows["layer"] == layer)].set_index("seed")["value"]
            told = figure.data.query(
                f"series == 'masked-lm' and task == 'tags' and quantity == '{quantity}' and layer == {layer}"
            )
            assert told["value"].item() == pytest.approx(sign * (single - none).mean())
            assert told["value"].item() == pytest.approx(sign * change, abs=0.03)
    assert figure.answer[1].startswith("In masked LM, resetting block 2 alone costs the task most (0.08)")
    assert "block 3 regains most of pretraining (0.40 nats)" in figure.answer[1]


def test_tasks_agree_about_heads_as_the_table_of_overlap_says(run, figures) -> None:
    figure, table = figures["head-overlap"], run.tables["tuning_heads"]
    own = table[(table["objective"] == "masked-lm") & table["trained"] & (table["control"] == "")]
    for measure in ("spearman", "jaccard"):
        each = []
        for seed in own["seed"].unique():
            by_task = {task: own[(own["seed"] == seed) & (own["task"] == task)] for task in ("opinions", "tags")}
            found = head_overlap(by_task)
            each.append(found.loc[found["measure"] == measure, "value"].item())
        rows = figure.data[(figure.data["series"] == "masked-lm") & (figure.data["measure"] == measure)]
        for a, b in (("opinions", "tags"), ("tags", "opinions")):
            told = rows[(rows["task_a"] == a) & (rows["task_b"] == b)]
            assert told["value"].item() == pytest.approx(np.mean(each))


def test_layers_taken_back_go_from_none_to_all(figures) -> None:
    figure = figures["layer-swaps"]
    (panel,) = [panel for panel in figure.panels if panel.title == "masked LM: score of the task"]
    data = figure.data[(figure.data["series"] == "masked-lm") & (figure.data["quantity"] == "score")]
    values = data.set_index(["rewound", "blocks"])["value"]
    for side in ("lower", "upper"):
        first = ("lower", 0) if side == "lower" else ("none", 0)
        places = [first, (side, 1), (side, 2), (side, 3), ("all", 4)]
        drawn = {row["blocks"]: row["value"] for row in rows_of(panel, side=side)}
        assert drawn == {place[1]: pytest.approx(values[place], abs=1e-4) for place in places}
    assert "resetting upper blocks regains 0.48" in figure.answer[1]
    assert "more than resetting as many lower ones" in figure.answer[1]


def test_both_stacks_learned_the_task(alone) -> None:
    """Embeddings of both stacks are one place; blocks of the decoder have rows of their own."""
    shares = {("encoder", -1): 0.2, ("decoder", -1): 0.2, ("encoder", 0): 0.1, ("decoder", 0): 0.4, ("", -2): 0.1}

    def writes(frame):
        first = frame[frame["layer"] == -2]
        parts = {-1: "embeddings", -2: "task-head", 0: "query"}
        return pd.concat(
            first.assign(stack=stack, layer=layer, component=parts[layer], value=-share, total=-1.0)
            for (stack, layer), share in shares.items()
        )

    figure = alone("tuning_allocation", writes)["tuning-learned"]
    assert figure.data.groupby("task")["share"].sum().to_numpy() == pytest.approx(1.0)
    assert (
        "10% of the fall of the loss came from the task's head, 50% from the blocks, 40% from the" in figure.answer[0]
    )
    assert "block 0 of the decoder contributed most (40%)" in figure.answer[0]
    (panel,) = figure.panels
    assert {row["label"] for row in rows_of(panel, set=0)} >= {
        "task's head",
        "decoder block 0",
        "block 0",
        "embeddings",
    }


def test_blocks_that_one_task_alone_has_count_once(alone) -> None:
    """A summary is written by a decoder, whose blocks no other task tunes: shares add up to 100 over both."""

    summary, tags = list(TASKS)[:2]
    shares = {
        (summary, "", -2): 0.2,
        (summary, "encoder", 0): 0.2,
        (summary, "decoder", 0): 0.6,
        (tags, "", -2): 0.5,
        (tags, "encoder", 0): 0.5,
    }

    def writes(frame):
        first = frame[frame["layer"] == -2]
        parts = {-2: "task-head", 0: "query"}
        return pd.concat(
            first[first["task"] == task].assign(
                stack=stack, layer=layer, component=parts[layer], value=-share, total=-1.0
            )
            for (task, stack, layer), share in shares.items()
        )

    answer = alone("tuning_allocation", writes)["tuning-learned"].answer[0]
    assert "35% of the fall of the loss came from the task's head, 65% from the blocks, 0% from the" in answer
    assert "block 0 contributed most (35%)" in answer


def test_a_wide_extreme_hides_no_clear_difference(alone) -> None:
    def wide(frame):
        frame = frame[(frame["probe"] == "upos") & (frame["layer"] < 2) & (frame["task"] == "tags")]
        after = frame["state"] == "after"
        value = np.where(after, np.where(frame["layer"] == 0, 0.5, 0.7), 0.8)
        draws = [
            list(one + (0.4 if one == 0.5 else 0.001) * stream("wide").standard_normal(NUM_REPLICATES)) for one in value
        ]
        return frame.assign(value=value, low=value, high=value, replicates=draws)

    (answer,) = alone("probes_after_tuning", wide)["probes-after-tuning"].answer
    assert answer.startswith("Masked LM loses most of")
    assert "in layer 1" in answer
    assert answer.endswith("1 of 2 differences are clear of 0.")


def test_the_gain_of_pretraining_is_over_tasks_that_have_both(alone) -> None:
    def without(frame):
        hard = frame["task"] == "opinions"
        left = frame[~hard | frame["trained"]]
        return left.assign(value=np.where(left["task"] == "opinions", 0.2, left["value"]))

    def only(frame):
        return frame[frame["task"] != "opinions"]

    answers = [alone("tuned_scores", change)["tuned-scores"].answer[-1] for change in (without, only)]
    assert answers[0] == answers[1]


def test_roles_in_another_order_are_the_same_roles(alone) -> None:
    def swapped(frame):
        return frame.assign(role_before="first token, SEP", role_after="SEP, first token")

    assert "0% of the heads have other roles than before" in alone("tuning_heads", swapped)["tuned-heads"].answer[-1]


def test_shares_of_the_loss_change_add_up_to_one(figures) -> None:
    data = figures["tuning-learned"].data
    sums = data.groupby(["series", "task"])["share"].sum()
    np.testing.assert_allclose(sums, 1.0)
    assert "19% of the fall of the loss came from the task's head" in figures["tuning-learned"].answer[0]


def test_heads_are_kept_gained_and_lost_by_rank(alone) -> None:
    def ranked(frame):
        frame = frame[(frame["task"] == "tags") & (frame["layer"] == 0)]
        return frame.assign(cost_before=[8.0, 7, 6, 5, 4, 3, 2, 1] * 2, value=[9.0, 1, 8, 2, 3, 4, 5, 6] * 2)

    figure = alone("tuning_heads", ranked)["tuned-heads"]
    assert list(figure.data["fate"]) == ["kept", "lost", "gained", "", "", "", "", ""]
    rows = sorted(rows_of(figure.panels[0], set=0), key=lambda row: row["head"])
    assert [row["before"] for row in rows] == [1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert [row["after"] for row in rows] == [1, 0.125, 0.875, 0.25, 0.375, 0.5, 0.625, 0.75]
    assert [row["fate"] for row in rows] == list(figure.data["fate"])


def test_the_head_map_goes_from_before_to_after(figures) -> None:
    figure = figures["tuned-heads"]
    assert figure.payload["sets"][:2] == ["opinions: importance (rank)", "opinions: confidence"]
    spec = figure.panels[0].spec
    assert {one["name"]: one["value"] for one in spec["params"]}["frame"] == figure.payload["steps"]
    assert "datum.before + (datum.after - datum.before) * frame / 10" in str(spec)
    assert len(rows_of(figure.panels[0], set=0)) == 4 * 8


def test_flipped_examples_are_those_that_changed_sides(figures) -> None:
    figure = figures["tuned-flipped"]
    assert [(row["gained"], row["beside"], row["tuned"]) for row in figure.payload["rows"]] == [
        (True, "bad", "good"),
        (True, "bad", "good"),
        (False, "good", "bad"),
    ]
    assert figure.answer[0].startswith("Of 4 examples that both answered, tuning all weights got 2 right")


def test_a_stack_beside_a_head_of_no_stack_is_the_one_compared(figures) -> None:
    """The tasks' heads have no stack: a causal LM's own is its decoder."""
    for name in ("tuning-change", "tuning-weights", "label-by-layer", "tuning-learned"):
        assert "causal-lm" in set(figures[name].data["series"]), name
    assert (figures["tuning-learned"].data.query("series == 'causal-lm'")["layer"] >= 0).any()


def test_intervals_of_scores_end_where_the_metric_does(alone) -> None:
    def wide(frame):
        return frame.assign(low=-0.4, high=1.3)

    found = alone("tuned_scores", wide)
    for name in ("tuned-scores", "tuned-worth"):
        assert found[name].data["low"].min() == 0, name
        assert found[name].data["high"].max() == 1, name


def test_leakage_is_told_where_there_is_some(run, section, tmp_path) -> None:
    assert section.payload["leaks"] == [
        "opinions: of 200 test texts 3 occur in the pretraining corpus and 2 more differ by one word from a text of "
        "the pretraining corpus."
    ]
    clean = adapted.write_run(tmp_path, ONE, only=("task_answers",))
    for same, near, told in ((0, 0, 0), (0, 1, 2)):
        adapted.write_table(clean, "task_leakage", run.tables["task_leakage"].assign(same=same, near=near))
        found = drawn_section(clean, "adaptation")
        assert found is not None
        assert len(found.payload.get("leaks", [])) == told


def test_means_are_over_seeds_of_tuning(run, figures) -> None:
    """Of one seed of pretraining after the other: seeds of tuning first, in their replicates too."""
    table = run.tables["tuned_scores"]
    table = table[(table["part"] == "test") & table["main"] & (table["examples"] == 1000)]
    table = table[(table["method"] == "full") & (table["strategy"] == "as-is") & (table["control"] == "")]
    data = figures["tuned-scores"].data
    data = data[(data["group"] != "shuffled labels") & (data["task"] != "average")]
    assert len(data) == 2 * 2 * len(TASKS)
    for row in data.itertuples():
        same = table[(table["objective"] == row.series) & (table["trained"] == row.trained)]
        of_seeds = [own for _, own in same[same["task"] == row.task].groupby("seed")]
        assert [len(own) for own in of_seeds] == [2] * 3
        values = np.array([own["value"].mean() for own in of_seeds])
        replicates = np.array([np.mean(own["replicates"].tolist(), axis=0) for own in of_seeds])
        low, high = interval_over_seeds([(seed,) for seed in (1, 2, 3)], values, replicates)
        assert (row.value, row.low, row.high) == pytest.approx((values.mean(), low, high), abs=1e-5)


def test_text_of_tables_cannot_break_out(tmp_path) -> None:
    given = Adapted(seeds=(1,), tuning_seeds=(0,), objectives=("masked-lm",))
    given.hostile = HOSTILE
    run = adapted.write_run(tmp_path, given)
    page = write_report(run).read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert "opinions&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "Text number 0 &lt;script&gt;" in page


def test_the_page_tells_methods_and_stays_small(page, tmp_path) -> None:
    told = page.read_text(encoding="utf-8")
    for method in ("tuned-scores", "tuned-worth", "tuned-inside", "tuned-swaps", "tuned-allocation", "tuned-heads"):
        assert f'id="method-{method}"' in told
    assert 'data-labels="before tuning|10%|' in told
    bare = write_report(adapted.write_run(tmp_path, Adapted(objectives=SOME), only=("task_scores",)))
    assert page.stat().st_size - bare.stat().st_size < 600_000


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ((0.4, 0.5, 0.3, 0.5, 0.2), "no layer is better than the majority class"),
        ((0.5, 0.595, 0.6, 0.4, 0.5), "best in layer 2, nine tenths of its margin from layer 1 on"),
        ((0.5, 0.585, 0.6, 0.4, 0.5), "best in layer 2, nine tenths of its margin from layer 2 on"),
    ],
)
def test_a_label_that_no_layer_tells_is_said_to_be_unreadable(alone, after, told) -> None:
    def read(frame):
        values = frame["layer"].map(dict(enumerate(after)))
        return frame.assign(value=values.where(frame["state"] == "after", 0.45), baseline=0.5)

    assert alone("label_by_layer", read)["label-by-layer"].answer[0].endswith(f" than before tuning ({told}).")
