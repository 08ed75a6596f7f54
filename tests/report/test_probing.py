"""The section on probes: sentences and pictures from the data, controls, what is missing, text that is escaped."""

import numpy as np
import pandas as pd
import probed
import pytest
import small_run
from drawn import drawn_figures, drawn_section
from synthetic_run import LAYERS, OBJECTIVES, _write

from infoflow.foundation import on_halves
from infoflow.report import write_report
from infoflow.results import RunFolder

pytestmark = pytest.mark.slow

SOME = ("upos", "word")
ONE = {"seeds": (1,), "objectives": ("masked-lm",)}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return probed.write_run(tmp_path_factory.mktemp("probed"))


@pytest.fixture(scope="module")
def figures(run):
    return drawn_figures(run, "probing")


@pytest.fixture(scope="module")
def page(run) -> str:
    return write_report(run).read_text(encoding="utf-8")


def written(path, **rows) -> RunFolder:
    """A study with these tables of probes and no other."""
    run = probed.write_run(path, seeds=(1, 2), tables=("none",))
    for name, own in rows.items():
        _write(run, name, "share", own)
    return run


def strings(panel) -> set[str]:
    """All text that a picture draws."""
    rows = [row for rows in panel.spec["datasets"].values() for row in rows]
    return {str(value) for row in rows for value in row.values()}


def test_figures_come_in_order(figures) -> None:
    assert list(figures) == [
        "probe-accuracy",
        "probe-selectivity",
        "probe-examples",
        "probe-solved",
        "probe-bits",
        "probe-size",
        "probe-depth",
        "probe-trees",
        "probe-pairs",
    ]


def test_single_examples_show_from_which_layer_on_they_are_right(figures, page) -> None:
    figure = figures["probe-solved"]
    (card,) = figure.payload["cards"]
    assert card["task"] == "part of speech"
    told = [example["told"] for example in card["examples"]]
    assert (told[0], told[-2:]) == ("right in all states", ["right only below the top", "right in no state"])
    assert told[1:-2] == [f"right from state {layer} on" for layer in (2, 4, 6)]
    assert LAYERS == 6
    first = card["examples"][1]
    assert [piece["mark"] for piece in first["pieces"]] == [0, 0, 1, 0]
    assert len(first["strips"]) == 2 * len(OBJECTIVES)
    trained, untrained = first["strips"][:2]
    assert (untrained["trained"], trained["trained"]) == (False, True)
    assert [cell["right"] for cell in trained["cells"]] == [0, 0, 1, 1, 1, 1, 1]
    assert {cell["right"] for cell in untrained["cells"]} == {0}
    assert f"{LAYERS} of {LAYERS + 3} in causal LM" in figure.words
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</mark>" in page
    assert "<script>alert(1)</script>" not in page


def examples_of(path, right: str = "1", text: str = "the dog", asked: tuple[int, int] = (0, 1)) -> list[dict]:
    """The card of one example that most probes get right in these states, and few in others."""
    place = {"task": "upos", "unit": "token", "probe": "linear", "stack": "encoder", "example": 0, "seeds": 3}
    told = {"text": text, "first_start": asked[0], "first_end": asked[1], "second_start": -1, "second_end": -1}
    rows = [
        small_run.keys_of("masked-lm")
        | {**place, **told, "layer": layer, "said": "X", "gold": "X", "right": 0.67 if one == "1" else 0.33}
        for layer, one in enumerate(right)
    ]
    scores = accuracies({"task": "upos", "layer": 0, "value": 0.5})
    run = small_run.write_run(path, probe_examples=rows[::-1], probe_scores=scores)
    figure = drawn_figures(run, "probing")["probe-solved"]
    return figure.payload["cards"][0]["examples"]


@pytest.mark.parametrize(
    ("right", "told"),
    [
        ("0011", "right from state 2 on"),
        ("1111", "right in all states"),
        ("0001", "right from state 3 on"),
        ("1110", "right only below the top"),
        ("0000", "right in no state"),
        ("1011", "right from state 2 on"),
    ],
)
def test_the_state_from_which_on_all_are_right(tmp_path, right: str, told: str) -> None:
    (example,) = examples_of(tmp_path, right)
    assert example["told"] == told


def held_out(rows: pd.DataFrame) -> np.ndarray:
    """The value of each seed on the half of the sentences that does not choose the best layer."""
    rows = rows.sort_values("seed")
    return on_halves(rows["value"].to_numpy(dtype=float), list(rows["replicates"])).second


def test_preferences_are_told_beside_chance_and_the_untrained_model(run, figures) -> None:
    figure = figures["probe-pairs"]
    titles = ["all pairs (300)", "agreement (300)", "<b>islands (300)"]  # escaped where the page is written
    assert [panel.title for panel in figure.panels] == titles
    table = run.tables["minimal_pairs"]
    own = table[(table["metric"] == "preferred") & (table["phenomenon"] == "all") & table["trained"]]
    means = own.groupby(["objective", "layer"])["value"].mean()
    drawn = figure.data[(figure.data["phenomenon"] == "all") & (figure.data["group"] == "trained")]
    for row in drawn.itertuples():
        assert row.value == pytest.approx(means[row.series, row.layer])
    top = own[own["layer"] == 6].groupby("objective")
    assert f"{held_out(top.get_group('masked-lm')).mean():.2f} (" in figure.words
    assert "chance is 0.5" in figure.words
    (above,) = figure.answer
    assert above.startswith("Acceptable sentences preferred: 0.70 (")
    assert " in layer 6 of " in above
    assert above.endswith(" above an untrained model's best layer.")


def test_a_model_that_prefers_nothing_is_said_to(tmp_path) -> None:
    rows = probed.pair_rows(seeds=(1, 2), objectives=("masked-lm",))
    rows = [row | probed._estimate(0.5, (str(row["layer"]), row["seed"]), 0.01, 0.01, 0.5, 300) for row in rows]
    figure = drawn_figures(written(tmp_path, minimal_pairs=rows), "probing")["probe-pairs"]
    assert figure.words.endswith("; chance is 0.5.")
    assert "not clearly different from an untrained model's best layer" in figure.answer[0]


def test_accuracy_is_told_beside_its_controls(run, figures) -> None:
    figure = figures["probe-accuracy"]
    ends, _, upos, *_ = figure.answer
    assert ends.startswith("Of 12 cases (tasks and models), the best layer is clearly above the embeddings in 9, ")
    frame = run.tables["probe_scores"]
    own = frame[(frame["metric"] == "accuracy") & (frame["labels"] == "task") & (frame["share"] == 1.0)]
    own = own[own["task"] == "upos"]
    assert " in layer 3 of masked LM (2, 4 and 5 do not clearly differ), " in upos
    layers = own[own["trained"] & (own["objective"] == "masked-lm")].groupby("layer")
    assert layers["value"].mean().idxmax() == 3
    best, embeddings = (held_out(layers.get_group(layer)) for layer in (3, 0))
    assert f"{best.mean():.3f} (" in upos
    assert f"{(best - embeddings).mean():.3f} (" in upos
    assert "above its embeddings" in upos
    assert "above the control task there" in upos
    assert upos.endswith(" above an untrained model's best layer.")


def test_accuracy_draws_untrained_control_and_majority(figures) -> None:
    figure = figures["probe-accuracy"]
    assert [panel.title for panel in figure.panels] == [
        "word identity",
        "part of speech",
        "relation to the head",
        "dependency arcs",
    ]
    assert {"untrained", "control task", "majority class", "masked LM"} <= strings(figure.panels[1])
    assert "control task" not in strings(figure.panels[3])
    control = figure.data[(figure.data["group"] == "control task") & (figure.data["task"] == "upos")]
    np.testing.assert_allclose(control["value"], probed.CONTROL, atol=0.01)
    assert "trained on 12,000 examples" in figure.caption
    assert figure.findings == ("probing:P-1", "probing:P-2", "probing:P-3", "probing:P-6")


def test_selectivity_keeps_seen_and_unseen_types_apart(figures) -> None:
    figure = figures["probe-selectivity"]
    first, second = figure.answer
    assert first.startswith("Embeddings are clearly less selective than the best layer above them in 6 of 6 cases.")
    assert "part of speech: 0.2" in second
    assert set(figure.data["words"]) == {"all", "seen", "unseen"}
    shown = figure.data[(figure.data["words"] == "all") & (figure.data["group"] == "trained")]["shown"]
    assert all("; seen types " in text and "; unseen types " in text for text in shown)
    assert {"as the control", "untrained"} <= strings(figure.panels[0])


def test_all_other_figures_show_probes_with_all_examples(tmp_path) -> None:
    how = {"tasks": SOME, "objectives": ("masked-lm",), "seeds": (1, 2)}
    whole = written(tmp_path, probe_scores=probed.score_rows(**how, shares=(1.0,)))
    part = written(tmp_path / "more", probe_scores=probed.score_rows(**how))
    first, second = (drawn_figures(each, "probing") for each in (whole, part))
    assert "probe-examples" not in first
    pd.testing.assert_frame_equal(first["probe-accuracy"].data, second["probe-accuracy"].data)


def test_bits_stand_beside_accuracy(figures) -> None:
    figure = figures["probe-bits"]
    assert [panel.title for panel in figure.panels[2:4]] == ["part of speech: compression", "part of speech: accuracy"]
    assert {"control task", "shuffled labels", "untrained"} <= strings(figure.panels[2])
    assert "uniform code" not in strings(figure.panels[2])  # shuffled labels say as much
    assert "uniform code" in strings(figure.panels[0])
    assert any("on part of speech accuracy is as high (0.78 and 0.78) while" in text for text in figure.answer)
    assert figure.answer[-1] == "The variational code is shortest at the same layer in 12 of 12 cases."
    shuffled = figure.data[(figure.data["group"] == "shuffled labels") & (figure.data["metric"] == "compression")]
    assert shuffled["value"].max() < 1


def test_mixed_units_are_left_out_or_told(tmp_path) -> None:
    rows = probed.code_rows(**ONE, codes=("online",), tasks=SOME)
    mixed = [row | {"units": "mixed", "value": 9 * row["value"]} for row in rows]
    only = drawn_figures(written(tmp_path / "only", probe_codelength=mixed), "probing")["probe-bits"]
    assert "Units are mixed" in only.caption
    both = drawn_figures(written(tmp_path / "both", probe_codelength=[*mixed, *rows]), "probing")["probe-bits"]
    assert "Units are mixed" not in both.caption
    assert float(both.data["value"].max()) < 8


def test_sizes_are_units_that_survive_else_the_model_part(tmp_path, figures) -> None:
    figure = figures["probe-size"]
    assert figure.words.startswith("The smallest probe that a task takes is 10")
    assert "clearly smaller than its control's in 6 of 6 cases" in figure.words
    assert figure.findings == ("probing:M-6",)
    online = written(tmp_path, probe_codelength=probed.code_rows(**ONE, codes=("online",), tasks=SOME))
    other = drawn_figures(online, "probing")["probe-size"]
    assert set(other.data["metric"]) == {"model_bits"}
    assert " kbit" in other.words


def test_depth_has_bars_and_places_for_every_model(run, figures) -> None:
    figure = figures["probe-depth"]
    assert [panel.title for panel in figure.panels[:2]] == [
        "causal LM: weights, and what layers add",
        "causal LM: expected layer, centre of gravity",
    ]
    assert len(figure.panels) == 6
    assert figure.words.startswith("The expected layer is ")
    assert figure.findings == ("probing:T-1", "probing:T-2", "probing:T-3")


def test_what_is_ill_defined_has_a_warning(figures) -> None:
    figure = figures["probe-depth"]
    bars, dots = (strings(panel) for panel in figure.panels[:2])
    assert "⚠" in dots
    assert "⚠" not in bars
    assert any("; by the running maximum 2.0" in text for text in dots)
    assert any(text.startswith("K(s) ") for text in bars)
    assert any(text.startswith("F1 ") for text in dots)


def test_losses_hang_below_the_line_and_no_bar_leaves_its_row(figures) -> None:
    spec = figures["probe-depth"].panels[0].spec
    bars = [row for rows in spec["datasets"].values() for row in rows if "top" in row]
    assert {row["name"] for row in bars} == {"weight in the mix", "added to F1"}
    lost = [row for row in bars if row["top"] > row["y"]]
    assert lost
    data = figures["probe-depth"].data
    own = data[(data["statistic"] == "delta") & (data["group"] == "trained") & (data["series"] == "causal-lm")]
    assert len(lost) == (own["value"] < -0.0001).sum()
    assert all(row["y"] - 0.601 <= row["top"] <= row["y"] + 0.261 for row in bars)


def test_trees_are_told_beside_chain_random_map_and_untrained(run, figures) -> None:
    figure = figures["probe-trees"]
    assert [panel.title for panel in figure.panels] == [
        "edges of the tree",
        "distances in the tree",
        "the root",
        "depths in the tree",
    ]
    table = run.tables["probe_trees"]
    own = table[(table["metric"] == "uuas") & (table["objective"] == "masked-lm") & table["trained"]]
    best = held_out(own[(own["probe"] == "structural") & (own["layer"] == 4)])
    chain = held_out(own[own["probe"] == "chain"])
    edges = figure.answer[0]
    assert edges.startswith(f"Edges of the tree: {best.mean():.3f} (")
    assert f"{(best - chain).mean():.3f} (" in edges.split("above its embeddings, ")[1].split(" above a chain")[0]
    assert "above a random map" in edges
    assert {"chain of words", "random map", "untrained"} <= strings(figure.panels[0])
    assert "chain of words" not in strings(figure.panels[2])
    assert "3 sentences without one tree are left out" in figure.caption
    assert figure.data["layer"].min() == 0


def test_one_seed_and_no_untrained_model(tmp_path) -> None:
    rows = {name: rows(**ONE, trained=(True,)) for name, rows in probed.WRITERS.items()}
    run = written(tmp_path, **rows)
    section = drawn_section(run, "probing")
    assert section is not None
    assert not section.untrained
    for figure in section.figures:
        told = " ".join(figure.answer)
        assert told or figure.id == "probe-examples"
        assert "untrained" not in told
        assert "nan" not in told.lower()
        assert all("untrained" not in strings(panel) for panel in figure.panels)
        if figure.id != "probe-solved":
            assert "hollow" in figure.caption or "One seed" in figure.caption
    assert "One seed" in section.figures[0].caption


def test_names_of_tasks_are_escaped(tmp_path) -> None:
    evil = '<script>alert("x")</script>'
    rows = {name: rows(**ONE) for name, rows in probed.WRITERS.items()}
    renamed = {
        name: [row | {"task": evil} if row.get("task") == "upos" else row for row in own] for name, own in rows.items()
    }
    page = write_report(written(tmp_path, **renamed)).read_text(encoding="utf-8")
    assert 'id="method-probe-depth"' in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def accuracies(*rows: dict) -> list[dict]:
    """Rows of `probe_scores`: what they leave out is of a linear probe of one model."""
    place = {"unit": "token", "probe": "linear", "dropout": 0.0, "stack": "encoder", "labels": "task", "words": "all"}
    sizes = {"metric": "accuracy", "share": 1.0, "training": 100, "capacity": 9}
    return [
        small_run.keys_of("masked-lm") | place | sizes | small_run.estimate(row["value"], 0.001, -0.1) | row
        for row in rows
    ]


def test_of_many_tasks_those_that_depend_on_depth_have_panels(tmp_path) -> None:
    def panels(name, tasks):
        rows = accuracies(
            *({"task": f"t{n}", "layer": layer, "value": 0.01 * n * layer} for n in tasks for layer in range(3))
        )
        run = small_run.write_run(tmp_path / name, probe_scores=rows)
        return [panel.title for panel in drawn_figures(run, "probing")["probe-accuracy"].panels]

    assert panels("many", range(20)) == [f"t{task}" for task in range(8, 20)]
    assert panels("few", (1, 0)) == ["t1", "t0"]


def test_the_linear_probe_is_shown_and_one_setting_of_it(tmp_path) -> None:
    rows = accuracies(
        {"task": "upos", "probe": "mlp", "dropout": 0.0, "layer": 0, "value": 0.1},
        {"task": "upos", "probe": "linear", "dropout": 0.0, "layer": 0, "value": 0.5},
        {"task": "upos", "probe": "linear", "dropout": 0.4, "layer": 0, "value": 0.9},
        {"task": "ner", "probe": "mlp", "dropout": 0.1, "layer": 0, "value": 0.7},
    )
    figure = drawn_figures(small_run.write_run(tmp_path, probe_scores=rows), "probing")["probe-accuracy"]
    assert [panel.title for panel in figure.panels] == ["part of speech", "named entities (tags) (MLP)"]
    kept = figure.data[figure.data["group"] == "trained"]
    assert dict(zip(kept["task"], kept["value"], strict=True)) == {"upos": 0.5, "ner": 0.7}
