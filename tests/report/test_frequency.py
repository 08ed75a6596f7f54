"""Change and influence by frequency rank: sentences, scales, lines and labels."""

import numpy as np
import pytest

from infoflow.representations import ChangeByFrequency, InfluenceByFrequency
from infoflow.results import RunFolder

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
STACKS = {"causal-lm": "decoder", "masked-lm": "encoder", "translation": "encoder"}
EDGES = (1, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
NUM_BINS = len(EDGES) - 1
# From the most frequent to the rarest bin, at the first and the last step; published, the middle is interpolated.
CHANGE = {
    "causal-lm": ((0.126, 0.040), (0.075, 0.066)),
    "masked-lm": ((0.146, 0.059), (0.060, 0.117)),
    "translation": ((0.114, 0.045), (0.066, 0.028)),
}
INFLUENCE = {
    "causal-lm": ((0.006, 0.012), (0.004, 0.008)),
    "masked-lm": ((0.0025, 0.0041), (0.0007, 0.0022)),
    "translation": ((0.0003, 0.0059), (0.0006, 0.0007)),
}


def rank_rows(ends, name, first, layers, untrained, baseline, noise, seeds, **more):
    """Rows of a table by layer and bin; untrained models hardly depend on the bin."""
    rng = np.random.default_rng(0)
    rows = []
    for objective, (bottom, top) in ends.items():
        grid = np.linspace(np.geomspace(*bottom, NUM_BINS), np.geomspace(*top, NUM_BINS), layers)
        for seed in seeds:
            for trained in (True, False):
                for (layer, index), value in np.ndenumerate(grid if trained else np.full_like(grid, untrained)):
                    value = value + rng.normal(0, noise / 2)
                    replicates = value + rng.normal(0, noise, 50)
                    rows.append(
                        {
                            "model": f"{objective}/seed-{seed}",
                            "objective": objective,
                            "seed": seed,
                            "trained": trained,
                            "stack": STACKS[objective],
                            name: layer + first,
                            "bin": index,
                            "rank_low": EDGES[index],
                            "rank_high": EDGES[index + 1],
                            "value": value,
                            "low": value - 2 * noise,
                            "high": value + 2 * noise,
                            "baseline": baseline,
                            "count": 3000,
                            "replicates": list(replicates),
                            "width": 128,
                            "side": "mean",
                            **more,
                        }
                    )
    return rows


def write_tables(run, seeds=(1, 2, 3), change=CHANGE, influence=INFLUENCE):
    """Add both tables to a run folder."""
    from synthetic_run import _write

    rows = rank_rows(change, "layer", 0, 6, 0.02, 0.85, 0.002, seeds, next_layer=0)
    both = [
        row | {"pool": pool}
        for pool in ("others", "after")
        for row in rank_rows(influence, "block", 0, 6, 1e-5, 0.002, 0.0001, seeds)
        if pool == "others" or row["stack"] == "decoder"
    ]
    for measure, table in ((ChangeByFrequency, rows), (InfluenceByFrequency, both)):
        if not table:
            continue
        named = {column.name for column in measure.table.columns}
        assert named == set(table[0]) - {"model", "objective", "seed", "trained"}
        _write(run, measure.table.name, "1 − PWCCA", table)


def make_run(path, objectives=OBJECTIVES, seeds=(1, 2, 3), kind="study", **ends):
    """A run that measured nothing else."""
    from synthetic_run import _manifest, _model_entry

    run = RunFolder(path)
    write_tables(run, seeds=seeds, **ends)
    run.update(**_manifest(kind, "tatoeba-en-fr", [_model_entry(o, s) for o in objectives for s in seeds]))
    return run


def figures_of(run):
    from drawn import drawn_figures

    return drawn_figures(run, "changes")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def figures(run):
    return figures_of(run)


def layers_of(spec):
    return [layer for layer in spec["layer"] if "mark" in layer]


def data_of(spec, layer):
    return spec["datasets"][layer["data"]["name"]]


def test_one_panel_per_objective_on_one_scale(figures):
    for name in ("change-by-rank", "influence-by-rank"):
        panels = figures[name].panels
        assert [panel.title for panel in panels] == ["causal LM", "masked LM", "translation"]
        domains = {
            tuple(layer["encoding"]["y"]["scale"]["domain"])
            for panel in panels
            for layer in layers_of(panel.spec)
            if "scale" in layer["encoding"].get("y", {})
        }
        assert len(domains) == 1
        highest = figures[name].data["high"].max()
        assert highest < domains.pop()[1] < 1.1 * highest


def test_three_bins_are_told_apart_and_the_others_are_grey(figures):
    spec = figures["change-by-rank"].panels[0].spec
    between, control, bins = [layer for layer in layers_of(spec) if layer["mark"]["type"] == "line"]
    assert control["mark"]["strokeDash"] == [4, 3]
    assert control["mark"]["color"] == "var(--control)"
    assert between["encoding"]["color"] == {"value": "var(--control)"}
    grey = {row["ranks"] for row in data_of(spec, between)}
    assert grey | set(bins["encoding"]["color"]["scale"]["domain"]) == set(figures["change-by-rank"].data["ranks"]) - {
        "all"
    }
    scale = bins["encoding"]["color"]["scale"]
    assert (scale["domain"][0], scale["domain"][-1], len(scale["domain"])) == ("1–10", "2.5k–5k", 3)
    assert scale["range"] == ["var(--rank-0)", "var(--rank-5)", "var(--rank-10)"]
    marks = next(layer for layer in layers_of(spec) if "shape" in layer["encoding"])
    assert len(set(marks["encoding"]["shape"]["scale"]["range"])) == 3  # also without colours


def test_one_sentence_says_which_tokens_and_where(figures):
    assert figures["change-by-rank"].words == (
        "Frequent tokens change more at every step in causal LM and translation; frequent tokens change more at 3 of 6 "
        "steps in masked LM."
    )
    assert figures["influence-by-rank"].words == (
        "Rare tokens influence others more at every layer in causal LM and masked LM; rare tokens influence others "
        "more at 5 of 6 layers in translation."
    )
    assert not figures["change-by-rank"].folds


def test_blocks_are_drawn_at_the_layer_they_make(figures):
    assert set(figures["influence-by-rank"].data["layer"]) == set(range(1, 7))
    assert set(figures["change-by-rank"].data["from_layer"]) == set(range(6))


def test_only_the_pool_that_all_models_have_is_drawn(figures):
    data = figures["influence-by-rank"].data
    assert not data[data["group"] == "bin"].duplicated(["series", "layer", "rank_low"]).any()
