"""The maps of similar layers: which pairs they show, what is framed, what the sentences say."""

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_section
from synthetic_run import _write_plain

from infoflow.foundation import interval, stream
from infoflow.report import write_figures, write_report
from infoflow.results import RunFolder

OBJECTIVES = ("causal-lm", "masked-lm", "translation")


def grid(first, second, trained=True, layers=(3, 3), metric="rsa", shift=0):
    """INVENTED numbers: layer l of the first is most like layer l + shift of the second."""
    rows = []
    for a in range(layers[0]):
        for b in range(layers[1]):
            distance = abs(a + shift - b * (layers[0] - 1) / max(layers[1] - 1, 1))
            value = (0.4 + 0.3 * distance) if metric == "procrustes" else (0.8 - 0.2 * distance)
            value += 0.01 * first[1] + (0 if trained else 0.3 if metric == "procrustes" else -0.3)
            replicates = value + stream("similarity", a, b).normal(0, 0.01, 200)
            low, high = interval(replicates)
            rows.append(
                {
                    **{f"{name}_{side}": x for side, model in zip("ab", (first, second), strict=True)
                       for name, x in zip(("objective", "seed"), model, strict=True)},
                    "model_a": f"{first[0]}/seed-{first[1]}", "model_b": f"{second[0]}/seed-{second[1]}",
                    "trained": trained, "stack_a": "encoder", "stack_b": "encoder", "layer_a": a, "layer_b": b,
                    "metric": metric, "value": value, "low": low, "high": high,
                    "baseline": 1.5 if metric == "procrustes" else 0.05, "count": 700 if metric == "rsa" else 6000,
                    "replicates": replicates.tolist(), "width_a": 8, "width_b": 8,
                }
            )  # fmt: skip
    return rows


def study(path, rows, kind="study"):
    run = RunFolder(path)
    frame = pd.DataFrame(rows)
    _write_plain(run, "space_similarity", rows)
    models = {
        (model, objective, int(seed))
        for side in "ab"
        for model, objective, seed in frame[[f"{x}_{side}" for x in ("model", "objective", "seed")]].to_numpy()
    }
    models = [{"name": name, "objective": objective, "seed": seed} for name, objective, seed in sorted(models)]
    run.update(kind=kind, title="Invented", models=models, plan={}, warnings=[], command="")
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    pairs = [((a, s), (b, s)) for a, b in (OBJECTIVES[:2], OBJECTIVES[1:], OBJECTIVES[::2]) for s in (1, 2)]
    pairs += [((a, 1), (a, 2)) for a in OBJECTIVES]
    rows = [
        row
        for first, second in pairs
        for trained in (True, False)
        for metric in ("rsa", "cka_debiased", "procrustes")
        for row in grid(first, second, trained, metric=metric)
    ]
    return study(tmp_path_factory.mktemp("similarity"), rows)


def maps_of(run):
    """The maps, which come last."""
    return drawn_section(run, "similarity").figures[-1]


@pytest.fixture(scope="module")
def figure(run):
    return maps_of(run)


def titles(figure):
    return [panel.title for panel in figure.panels]


def test_pairs_of_objectives_then_seeds_then_the_untrained_control(figure):
    assert titles(figure) == [
        "causal LM – masked LM",
        "causal LM – translation",
        "masked LM – translation",
        "causal LM, two seeds",
        "masked LM, two seeds",
        "translation, two seeds",
        "two untrained models, two seeds",
    ]


def test_the_control_is_untrained_models_of_different_seeds_where_there_are_some(run, figure, tmp_path):
    """Untrained models of one seed start from the same weights: they would be alike by construction."""
    rows = run.tables["space_similarity"]
    own = rows[~rows["trained"] & (rows["seed_a"] != rows["seed_b"])]
    pd.testing.assert_frame_equal(control_of(figure), expected_control(own, pairs=3), check_dtype=False)
    one_seed = rows[rows["seed_a"] == rows["seed_b"]]
    stored = one_seed.assign(replicates=[list(own) for own in one_seed["replicates"]])
    figure = maps_of(study(tmp_path, stored.to_dict("records")))
    expected = expected_control(one_seed[~one_seed["trained"]], pairs=6)
    pd.testing.assert_frame_equal(control_of(figure), expected, check_dtype=False)
    assert titles(figure)[-1] == "two untrained models"


CELL = ["metric", "layer_a", "layer_b"]


def control_of(figure):
    """The cells of the last map, which is of untrained models."""
    data = figure.data[figure.data["models"] == ""]
    return data.sort_values(CELL)[[*CELL, "value", "pairs"]].reset_index(drop=True)


def expected_control(rows, pairs):
    means = rows.groupby(CELL, as_index=False)["value"].mean()
    assert len(rows) == pairs * len(means)
    return means.assign(pairs=pairs)


def test_a_pair_stored_the_other_way_round_is_the_same_map(tmp_path):
    rows = grid(("masked-lm", 1), ("translation", 1), shift=1)
    other = {"a": "b", "b": "a"}
    turned = pd.DataFrame(rows).rename(columns=lambda n: n[:-1] + other[n[-1]] if n[-2:] in ("_a", "_b") else n)
    figures = []
    for index, stored in enumerate((pd.DataFrame(rows), turned)):
        run = study(tmp_path / str(index), stored.to_dict("records"))
        figures.append(maps_of(run))
    assert figures[0].data["models"].unique().tolist() == ["masked-lm – translation"]
    pd.testing.assert_frame_equal(figures[0].data, figures[1].data)


def test_a_cell_is_the_mean_over_pairs_of_models(run, figure):
    rows = run.tables["space_similarity"]
    own = rows.query("objective_a == 'causal-lm' & objective_b == 'masked-lm' & trained & metric == 'rsa'")
    own = own[(own["layer_a"] == 2) & (own["layer_b"] == 1)]
    shown = figure.data.query("models == 'causal-lm – masked-lm' & metric == 'rsa' & layer_a == 2 & layer_b == 1")
    assert len(own) == 2
    assert shown["value"].item() == pytest.approx(own["value"].mean())
    assert shown["pairs"].item() == 2


def framed(panel):
    """(layer_a, layer_b) of the framed squares of a panel."""
    assert [layer["transform"][0]["filter"] for layer in panel.spec["layer"] if "transform" in layer] == [
        "datum.best"
    ] * 2
    [data] = panel.spec["datasets"].values()
    return [(row["layer_a"], row["layer_b"]) for row in data if row["best"]]


def scale_of(panel):
    return panel.spec["layer"][0]["encoding"]["opacity"]["scale"]


def test_smaller_distances_are_more_alike(figure):
    [group] = [group for group in figure.payload["metrics"] if group.id == "procrustes"]
    assert framed(group.panels[0]) == [(0, 0), (1, 1), (2, 2)]
    assert group.scale == ("shuffled words 1.50", "0.41 radians")
    assert scale_of(group.panels[0])["domain"] == pytest.approx([1.5, 0.41], abs=0.01)


def test_all_maps_of_a_measure_have_one_scale_that_begins_at_chance(figure):
    for group in figure.payload["metrics"]:
        assert len({str(scale_of(panel)) for panel in group.panels}) == 1
    assert scale_of(figure.panels[0])["domain"] == pytest.approx([0.05, 0.815])
    assert figure.payload["metrics"][0].scale == ("shuffled words 0.05", "0.82")


def test_sentences_tell_whether_likeness_follows_depth(figure):
    diagonal = np.mean([0.8] * 3) - np.mean([0.6, 0.6, 0.6, 0.6, 0.4, 0.4])
    assert figure.answer[0].startswith(
        f"Layers of equal depth are more alike than others in all pairs, by {diagonal:.3f}"
    )
    assert "best match lies at equal depth in 18 by RSA, 18 by CKA and 18 by Procrustes" in figure.answer[-1]
    assert figure.answer[-1].startswith("Of 18 columns")


def test_likeness_that_does_not_follow_depth_is_said(tmp_path):
    rows = grid(("causal-lm", 0), ("masked-lm", 0))
    for row in rows:
        row["replicates"] = [x - row["value"] + 0.5 for x in row["replicates"]]
        row["value"] = 0.5
    run = study(tmp_path, rows)
    figure = maps_of(run)
    assert figure.answer[-1] == "Layers of equal depth are not clearly more alike than others in causal LM – masked LM."


def test_models_of_different_depth_are_compared_by_relative_depth(tmp_path):
    run = study(tmp_path, grid(("causal-lm", 0), ("masked-lm", 0), layers=(3, 5)))
    figure = maps_of(run)
    values = figure.data.set_index(["layer_a", "layer_b"])["value"]
    equal = [(0, 0), (0, 1), (1, 2), (2, 3), (2, 4)]
    excess = values[equal].mean() - values.drop(equal).mean()
    assert f"Layers of equal depth are more alike than others in all pairs, by {excess:.3f} (" in figure.answer[0]


def test_unknown_cells_are_left_out_and_an_untrained_pair_alone_is_no_section(tmp_path):
    rows = grid(("causal-lm", 0), ("masked-lm", 0))
    for row in rows[:3]:
        row["value"] = row["low"] = row["high"] = float("nan")
    run = study(tmp_path / "holes", rows)
    figure = maps_of(run)
    assert len(figure.data) == 6
    run = study(tmp_path / "untrained", grid(("causal-lm", 0), ("masked-lm", 0), trained=False))
    assert drawn_section(run, "similarity") is None
    assert drawn_section(RunFolder(tmp_path / "empty"), "similarity") is None


def test_the_page_holds_every_measure_and_files_are_one_for_each(run, tmp_path):
    page = write_report(run).read_text(encoding="utf-8")
    for metric in ("rsa", "cka_debiased", "procrustes"):
        assert f'<button type="button" role="radio" aria-checked="{"true" if metric == "rsa" else "false"}"' in page
        assert f'<div class="metric" data-metric="{metric}">' in page
    assert page.count('class="spec"') == 3 * 7 + 1  # and RSA by layer
    names = [path.stem for path in write_figures(run, tmp_path, formats=("svg",))]
    maps = [f"space-similarity-{metric}" for metric in ("rsa", "cka_debiased", "procrustes")]
    assert names == ["similarity-by-layer", *maps]


def test_layers_of_equal_depth_are_curves_with_two_controls(run):
    section = drawn_section(run, "similarity")
    curves, maps = section.figures
    assert (section.shown, section.further) == ([curves], [maps])
    assert titles(curves) == ["RSA"]
    own = curves.data.set_index(["series", "layer"])
    pairs = ["causal-lm – masked-lm", "causal-lm – translation", "masked-lm – translation"]
    assert own.loc[pairs, "group"].eq("trained").all()
    assert own.loc[pairs, "value"].to_numpy() == pytest.approx(0.815, abs=0.01)  # of two seeds
    control = curves.data[curves.data["series"] == ""].set_index(["group", "layer"])["value"]
    assert control["untrained"].to_numpy() == pytest.approx(0.51, abs=0.01)
    assert control["baseline"].to_numpy() == pytest.approx(0.05)
    assert "for two untrained models it is 0.51" in curves.words
