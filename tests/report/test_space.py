"""The section on geometry: sentences from the data, controls, what is drawn."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_section
from synthetic_run import MAIN_STACK, _estimate, _model, _write

from infoflow.results import RunFolder

# Invented, but for the direction of the masked LM's curves.
AVERAGE = {
    "causal-lm": (0.30, 0.34, 0.36, 0.38, 0.42, 0.50, 0.70),
    "masked-lm": (0.10, 0.17, 0.22, 0.33, 0.42, 0.60, 0.48),
    "translation": (0.20, 0.21, 0.22, 0.23, 0.24, 0.25, 0.40),
}
WITHIN = (0.50, 0.45, 0.40, 0.33, 0.28, 0.22, 0.20)  # self-similarity above average similarity
DIMENSION = {
    "causal-lm": (5, 6, 7, 8, 9, 9, 9),
    "masked-lm": (4, 5, 6, 7, 8, 9, 9),
    "translation": (5, 6, 7, 8, 8, 8, 8),
}
LAYERS = range(7)
BY_WORD = ("self_similarity", "shuffled_self_similarity", "explainable_variance", "shuffled_explainable_variance")


def geometry_rows(stacks=MAIN_STACK, seeds=(1, 2, 3), trained=(True, False)):
    rows = []
    for objective in MAIN_STACK:
        for seed in seeds:
            for is_trained in trained:
                for layer in LAYERS:
                    keys = {**_model(objective, seed, is_trained), "stack": stacks[objective], "layer": layer}
                    rows += [{**keys, "words": "mean", **row} for row in layer_rows(objective, seed, is_trained, layer)]
    return rows


def layer_rows(objective, seed, trained, layer):
    average = AVERAGE[objective][layer] if trained else 0.41
    within = WITHIN[layer] if trained else 0.33
    dimension = DIMENSION[objective][layer] if trained else (72 if layer == 0 else 3)
    rows = {
        ("average_similarity", "raw"): (average, 0.0),
        ("average_similarity", "centred"): (0.001, 0.0),
        ("average_similarity", "standardised"): (0.0005, 0.0),
        ("average_similarity", "rank"): (0.6 * average, 0.0),
        ("rogue_dimensions", "raw"): (0.2 + 0.05 * layer, 3 / 128),
        ("self_similarity", "raw"): (average + within, average),
        ("shuffled_self_similarity", "raw"): (average + 0.002, average),
        ("explainable_variance", "raw"): (0.4 - 0.02 * layer if trained or layer else np.nan, 0.05),
        ("shuffled_explainable_variance", "raw"): (0.2, 0.05),
        ("intra_sentence_similarity", "raw"): (average + 0.3, average),
        ("unrelated_intra_sentence_similarity", "raw"): (average + 0.25, average),
        ("intrinsic_dimension", "raw"): (float(dimension), 60.0),
    }
    return [
        {"measure": measure, "space": space, "least": 5 if measure in BY_WORD else 0}
        | {"tokens_requested": 20_000, "tokens_kept": 13_879}
        | corrected(value, baseline, (measure, space, objective, seed, trained, layer))
        for (measure, space), (value, baseline) in rows.items()
    ]


def corrected(value, baseline, key):
    estimate = _estimate(value, tuple(map(str, key)), 0.002, 0.001, baseline, 7000)
    shifted = {
        f"corrected{end}": estimate[of] - baseline for end, of in (("", "value"), ("_low", "low"), ("_high", "high"))
    }
    return estimate | shifted


def distance_rows(seeds=(1, 2)):
    """Cosines around the average similarity; distances in bins of 1 for one seed and of 2 for the other."""
    rows = []
    for objective in MAIN_STACK:
        for seed in seeds:
            for trained in (True, False):
                for layer in LAYERS:
                    keys = {**_model(objective, seed, trained), "stack": MAIN_STACK[objective], "layer": layer}
                    centre = AVERAGE[objective][layer] if trained else 0.41
                    rows += histogram(keys, "cosine", np.linspace(-1, 1, 81), centre, 0.12)
                    rows += histogram(keys, "euclidean", np.arange(0, 41, seed), 10 + layer, 3)
    return rows


def histogram(keys, metric, edges, centre, spread):
    middle = (edges[1:] + edges[:-1]) / 2
    share, baseline = (np.exp(-(((middle - at) / spread) ** 2) / 2) for at in (centre, centre / 2))
    shares = zip(edges, edges[1:], share / share.sum(), baseline / baseline.sum(), strict=False)
    return [
        {**keys, "metric": metric, "bin_low": float(low), "bin_high": float(high)}
        | {"share": float(own), "baseline": float(control), "count": 20_000}
        for low, high, own, control in shares
    ]


@pytest.fixture(scope="module")
def run(study, tmp_path_factory):
    """The study with geometry."""
    folder = tmp_path_factory.mktemp("space") / "run"
    shutil.copytree(study.path, folder)
    run = RunFolder(folder)
    _write(run, "geometry", "", geometry_rows())
    _write(run, "distance_distribution", "", distance_rows())
    return run


@pytest.fixture(scope="module")
def section(run):
    return drawn_section(run, "space")


@pytest.fixture(scope="module")
def figures(section):
    return {figure.id: figure for figure in section.figures}


def drawn(figure, panel=0):
    """The rows in a panel's picture."""
    data = figure.panels[panel].spec["datasets"]
    return [row for rows in data.values() for row in rows]


def test_figures_come_in_order(section, figures):
    shown, folded = ["average-similarity", "self-similarity"], ["explainable-variance", "intrinsic-dimension"]
    assert list(figures) == [*shown, *folded]
    assert [figure.id for figure in section.shown] == shown
    assert [figure.id for figure in section.further] == folded


@pytest.fixture
def figures_of(study, tmp_path):
    """The figures of the study with these tables."""

    def draw(**tables):
        run = RunFolder(shutil.copytree(study.path, tmp_path / "run"))
        for name, rows in tables.items():
            _write(run, name, "", rows)
        return {figure.id: figure for figure in drawn_section(run, "space").figures}

    return draw


def test_what_is_left_in_another_space_is_said(figures_of):
    centred = ("average_similarity", "centred")
    rows = [
        row | {"value": row["value"] + 0.05 * ((row["measure"], row["space"]) == centred)} for row in geometry_rows()
    ]
    text = " ".join(figures_of(geometry=rows)["average-similarity"].answer)
    assert (
        "In every layer the mean cosine is at most 0.05 after the layer's mean is subtracted, less than 0.01 after "
        in text
    )


def test_anisotropy_is_shown_on_one_scale(figures):
    figure = figures["average-similarity"]
    assert {row["text"] for row in drawn(figure) if "text" in row} >= {"untrained", "isotropic", "masked LM"}
    text = " ".join(figure.answer)
    assert "the mean cosine in causal LM rises by 0.40" in text
    assert "the mean cosine in masked LM rises by 0.50" in text
    assert "drops again by 0.120 (0.111 to 0.129); overall it rises by 0.38" in text
    assert (
        "In every layer the mean cosine is less than 0.01 after the layer's mean is subtracted, less than 0.01 after "
        "every dimension is also scaled to variance 1 and at most 0.42 with Spearman's correlation in place of the "
        "cosine."
    ) in text
    assert "three dimensions carry is up to 50% in causal LM (layer 6)" in text
    assert "with equal shares it would be 2.3%" in text


def test_corrected_similarity_is_the_answer_and_shuffled_words_its_control(figures):
    figure = figures["self-similarity"]
    kinds = [f"within {unit}, {panel}" for unit in ("words", "sentences") for panel in ("uncorrected", "corrected")]
    assert [panel.title for panel in figure.panels] == kinds
    text = " ".join(figure.answer)
    assert "the corrected similarity within words in causal LM falls by 0.299 (" in text
    assert "For shuffled words it is less than 0.01 everywhere." in text
    assert {row["text"] for row in drawn(figure, 0) if "text" in row} >= {"random words"}
    assert {row["text"] for row in drawn(figure, 1) if "text" in row} >= {"shuffled words", "untrained"}


def test_corrected_replicates_are_paired_with_those_of_the_average(figures_of):
    """What both have in common cancels: the corrected curve is much surer than the raw one."""
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    shared = ("self_similarity", "average_similarity")
    rows = [
        row | {"replicates": list(np.add(row["replicates"], noise)) if row["measure"] in shared else row["replicates"]}
        for row in geometry_rows()
    ]
    data = figures_of(geometry=rows)["self-similarity"].data
    data = data[data["measure"] == "self_similarity"]
    curve = data[(data["series"] == "causal-lm") & (data["group"] == "trained")].set_index(["panel", "layer"])
    widths = (curve["high"] - curve["low"]).groupby("panel").mean()
    assert widths["uncorrected"] > 0.3
    assert widths["corrected"] < 0.02
    stored = pd.DataFrame(rows)
    stored = stored[stored["trained"] & (stored["space"] == "raw")].set_index("measure")
    for layer in LAYERS:
        own = stored[stored["layer"] == layer]
        mean = own[own["objective"] == "causal-lm"].loc["self_similarity", "corrected"].mean()
        assert curve.loc[("corrected", layer), "value"] == pytest.approx(mean)
        base = data[(data["panel"] == "corrected") & (data["group"] == "baseline") & (data["layer"] == layer)]
        assert base["value"].item() == pytest.approx(own.loc["shuffled_self_similarity", "corrected"].mean())
        assert base["value"].item() == pytest.approx(0.002, abs=0.01)


def test_undefined_values_are_left_out(figures):
    values = figures["explainable-variance"].data
    untrained = values[(values["group"] == "untrained") & (values["panel"] == "uncorrected")]
    assert untrained["layer"].min() == 1
    assert values["value"].notna().all()
    assert not any(
        "Untrained" in sentence for sentence in figures["explainable-variance"].answer
    )  # no layer 0 to compare


def shapes(figures):
    """The rows of the distributions."""
    data = figures["average-similarity"].data
    return data[data["metric"].notna()]


def test_distributions_of_seeds_are_averaged_in_the_wider_bins(figures):
    data = shapes(figures)
    euclidean = data[(data["metric"] == "euclidean") & (data["group"] == "trained")]
    assert ((euclidean["high"] - euclidean["low"]) == 2).all()
    sums = data.groupby(["series", "metric", "group", "layer"])["share"].sum()
    np.testing.assert_allclose(sums, 1, atol=0.01)


def test_each_model_has_a_ridge_of_cosines_and_one_of_distances(figures):
    figure = figures["average-similarity"]
    names = ["causal LM", "masked LM", "translation"]
    ridges = [f"{name}: {metric}" for metric in ("cosine", "distance") for name in names]
    assert [panel.title for panel in figure.panels] == ["average similarity", *ridges]
    scales = {json.dumps(panel.spec["layer"][0]["encoding"]["x"]["scale"]) for panel in figure.panels[1:4]}
    assert len(scales) == 1
    assert len(figure.panels[1].spec["layer"]) == 4  # area, its edge, the untrained model, the Gaussian
    assert set(shapes(figures)["group"]) == {"trained", "untrained", "baseline"}
    assert max(row["top"] - row["layer"] for row in drawn(figure, 1)) == pytest.approx(1.25)


def test_the_median_of_cosines_is_that_of_their_distribution(figures):
    """The median of a normal distribution is its mean."""
    highest, lowest = (AVERAGE[name][-1] for name in ("causal-lm", "translation"))
    text = f"the median cosine of two random words is highest in causal LM, {highest:.3f}; lowest in translation, "
    assert f"{text}{lowest:.3f}; in an untrained model it is at most 0.41." in figures["average-similarity"].words
