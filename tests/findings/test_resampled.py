"""The rows a statistic is taken of, against loops, and what they must keep."""

import numpy as np
import pytest

from infoflow.findings import plan_rows, resampled_curves
from infoflow.foundation import stream
from infoflow.results import Samples


def make_panel(units, values, replicates):
    rows = np.concatenate([np.asarray(values, dtype=float)[:, None], np.asarray(replicates, dtype=float)], axis=1)
    return Samples.of_units(dict(zip(units, rows, strict=True)))


def random_panel(units, num_replicates=7, num_layers=3, key=0):
    rng = stream("panel", key)
    values = rng.normal(size=(len(units), num_layers))
    return make_panel(
        units, values, values[:, None] + rng.normal(1.0, 0.1, size=(len(units), num_replicates, num_layers))
    )


def rows_of(panel, **more):
    curves, rows = resampled_curves({"curve": panel}, sorted(panel.seeds), **more)
    return curves["curve"], rows


def mean_of(panel, curves, without=None):
    chosen = [curve for unit, curve in zip(panel.units, curves, strict=True) if without not in unit]
    return np.mean(chosen, axis=0) if chosen else np.full(curves.shape[1], np.nan)


@pytest.mark.parametrize("units", [[(4,), (5,), (9,)], [(4, 5), (4, 9), (5, 9)], [(4,)], [(4, 5)]])
def test_rows_agree_with_loops(units):
    panel = random_panel(units)
    curves, rows = rows_of(panel)
    seeds = sorted(panel.seeds)
    shift = panel.replicates_URK.mean(axis=1) - panel.values_UK
    np.testing.assert_allclose(curves[0], mean_of(panel, panel.values_UK))
    for seed, row in zip(seeds, curves[rows.seeds], strict=True):
        own = [v for u, v in zip(panel.units, panel.values_UK, strict=True) if seed in u]
        np.testing.assert_allclose(row, np.mean(own, axis=0))
    for index, row in enumerate(curves[rows.replicates]):
        np.testing.assert_allclose(row, mean_of(panel, panel.replicates_URK[:, index] - shift))
    if len(seeds) == 1:
        return
    for seed, row in zip(seeds, curves[rows.without_seed], strict=True):
        np.testing.assert_allclose(row, mean_of(panel, panel.values_UK, without=seed))
    apart = curves[rows.replicates_without_seed].reshape(len(seeds), rows.num_apart, -1)
    for seed, own in zip(seeds, apart, strict=True):
        for index, row in enumerate(own):
            np.testing.assert_allclose(row, mean_of(panel, panel.replicates_URK[:, index] - shift, without=seed))


def test_draws_have_the_spread_of_their_source():
    """Draws of the seeds lie about the mean as Student's t, those of the sentences as their replicates."""
    panel = random_panel([(seed,) for seed in range(10)], num_replicates=200)
    curves, rows = rows_of(panel)
    by_seed, by_sentence, both = (
        curves[one] - curves[0] for one in (rows.seed_draws, rows.sentence_draws, rows.joint_draws)
    )
    np.testing.assert_allclose(both, by_seed + by_sentence)
    deviation = panel.values_UK.std(axis=0, ddof=1) / np.sqrt(10)
    np.testing.assert_allclose(by_seed.std(axis=0), deviation * np.sqrt(9 / 7), rtol=0.15)
    np.testing.assert_allclose(by_sentence.std(axis=0), curves[rows.replicates].std(axis=0, ddof=1), rtol=0.1)
    np.testing.assert_allclose(by_seed.mean(axis=0), 0, atol=1e-12)


def test_lists_of_replicates_are_cut_to_their_common_length():
    long, short = random_panel([(1,), (2,)], num_replicates=9), random_panel([(1,), (2,)], num_replicates=4)
    curves, rows = resampled_curves({"long": long, "short": short}, [1, 2])
    cut = make_panel(long.units, long.values_UK, long.replicates_URK[:, :4])
    assert rows.num_replicates == 4
    np.testing.assert_allclose(curves["long"], rows_of(cut)[0])


def test_models_measured_on_the_same_sentences_stay_paired():
    """A constant difference between two noisy models has an interval of no width."""
    first = random_panel([(1,), (2,), (3,)])
    second = make_panel(first.units, first.values_UK + 0.5, first.replicates_URK + 0.5)
    curves, _ = resampled_curves({"first": first, "second": second}, [1, 2, 3])
    np.testing.assert_allclose(curves["second"] - curves["first"], 0.5)


def test_bias_of_resamples_is_removed_and_their_spread_kept():
    panel = random_panel([(1,), (2,)])
    noise = panel.noise(7)
    np.testing.assert_allclose(noise.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(noise.std(axis=1), panel.replicates_URK.std(axis=1))


def test_a_replicate_without_a_number_leaves_the_spread_as_it_is():
    panel = random_panel([(1,)], num_replicates=4000)
    replicates = panel.replicates_URK.copy()
    replicates[0, ::4, 1] = np.nan
    holes = make_panel(panel.units, panel.values_UK, replicates).noise(4000)
    assert np.isfinite(holes).all()
    np.testing.assert_allclose(holes.std(axis=1), panel.noise(4000).std(axis=1), rtol=0.05)


def test_draws_do_not_depend_on_what_was_drawn_before():
    first = plan_rows(3, 10)
    plan_rows.cache_clear()
    plan_rows(5, 10)
    np.testing.assert_array_equal(first.seed_weights_NS, plan_rows(3, 10).seed_weights_NS)
    assert not np.array_equal(first.seed_weights_NS, plan_rows(3, 10, redraw=1).seed_weights_NS)
