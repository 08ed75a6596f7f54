"""Curves by layer and frequency bin, as the claims about frequency read them."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from infoflow.findings import FINDINGS, Absent

from .groups import models_of

CHANGE, INFLUENCE = FINDINGS["representations:V-10"], FINDINGS["representations:V-11"]
CHANGE_BY_RANK, INFLUENCE_BY_RANK = CHANGE.reads["causal"], INFLUENCE.reads["causal"]
RANK_BINS = (1, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
LAYERS = (1, 2, 3)


def numbers(finding, curve, condition):
    """What a condition compares, where all models have this curve."""
    return finding.conditions(dict.fromkeys(finding.reads, curve))[condition].values


def rank_correlation(curve):
    return numbers(INFLUENCE, curve, 0)[:, : len(LAYERS)]


def by_layer(curve):
    """The bins that were measured."""
    grid = curve.reshape(len(curve), len(LAYERS), len(RANK_BINS))
    return grid[:, :, ~np.isnan(grid[0, 0])]


def make_table(bins=range(11), layers=LAYERS, seeds=(1, 2), **changes):
    rows = [
        {
            "objective": "causal-lm",
            "seed": seed,
            "trained": True,
            "stack": "decoder",
            "layer": layer,
            "bin": index,
            "rank_low": RANK_BINS[index],
            "value": 100 * seed + 10 * layer + index,
            "baseline": 0.5,
            "replicates": [float(seed), float(index)],
        }
        | changes
        for seed in seeds
        for layer in layers
        for index in bins
    ]
    return {"change_by_frequency": pd.DataFrame(rows).sample(frac=1, random_state=0)}


def test_values_and_replicates_lie_where_they_belong():
    curve = CHANGE_BY_RANK.estimates(models_of(make_table()))
    assert curve.units == ((1,), (2,))
    values = curve.values_UK.reshape(2, 3, 11)
    assert values[1, 2].tolist() == [200 + 30 + index for index in range(11)]
    replicates = curve.replicates_URK.reshape(2, 2, 3, 11)
    assert (replicates[1, 0] == 2).all()
    assert (replicates[0, 1] == np.arange(11)).all()


def test_bins_that_were_left_out_are_passed_over():
    curve = CHANGE_BY_RANK.estimates(models_of(make_table(bins=(0, 1, 3, 4, 5, 8))))
    assert by_layer(curve.values_UK).shape == (2, 3, 6)
    frequent_over_rarest, rarest_over_next = numbers(CHANGE, curve.values_UK, 1), numbers(INFLUENCE, curve.values_UK, 1)
    assert frequent_over_rarest[0, :3].tolist() == [110 / 118, 120 / 128, 130 / 138]
    assert rarest_over_next[0, 0] == 118 / 115


def test_rank_correlation_is_scipys():
    curves = np.random.default_rng(0).random((4, 3 * 11))
    curves[:, [2, 13, 24]] = np.nan
    found = rank_correlation(curves)
    for row, layer in np.ndindex(4, 3):
        values = np.delete(curves[row].reshape(3, 11)[layer], 2)
        assert found[row, layer] == pytest.approx(spearmanr(values, np.arange(10)).statistic)


def test_permuted_bins_are_the_same_numbers_in_the_same_order_in_every_layer():
    curve = np.arange(33.0)[None]
    curve[:, [10, 21, 32]] = np.nan
    (control,) = (one for one in CHANGE.controls if one.name == "permuted frequency bins")
    permuted = control.transform({"a": curve})["a"]
    replicas = by_layer(permuted)
    assert replicas.shape == (1000, 3, 10)
    assert (np.sort(replicas, axis=2) == by_layer(curve)).all()
    assert (np.diff(replicas, axis=1) == 11).all()
    assert abs(rank_correlation(permuted).mean()) < 0.05


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({}, "the table change_by_frequency is absent"),
        (make_table(bins=range(4)), "has 4 of the published frequency bins, needed 5"),
        (make_table(layers=(0, 1, 2)), "has 2 layers from layer 1 on, needed 3"),
        (make_table(rank_low=7), "has 0 of the published"),
        (make_table(objective="masked-lm"), "no causal LM among the models"),
        (make_table(trained=False), "no matching rows of the trained causal LM"),
    ],
)
def test_what_is_missing_is_named(tables, text):
    with pytest.raises(Absent, match=text):
        CHANGE_BY_RANK.estimates(models_of(tables))


def test_influence_is_read_on_all_other_tokens_and_from_block_0():
    table = make_table()["change_by_frequency"].rename(columns={"layer": "block"})
    table["block"] -= 1
    both = pd.concat([table.assign(pool="others"), table.assign(pool="after", value=-1.0)])
    curve = INFLUENCE_BY_RANK.estimates(models_of({"influence_by_frequency": both}))
    assert curve.values_UK.shape == (2, 33)
    assert (curve.values_UK > 0).all()
