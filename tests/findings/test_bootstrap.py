"""The hierarchical bootstrap against loops, and what it must keep."""

import numpy as np
import pytest


def make_panel(units, values, replicates):
    from infoflow.findings._panel import Panel

    values = np.asarray(values, dtype=float)
    return Panel(
        units=tuple(units),
        layers=tuple(range(values.shape[1])),
        values_UK=values,
        replicates_URK=np.asarray(replicates, dtype=float),
    )


def random_panel(units, num_replicates=7, num_layers=3, key=0):
    from infoflow.foundation import stream

    rng = stream("panel", key)
    values = rng.normal(size=(len(units), num_layers))
    return make_panel(
        units, values, values[:, None] + rng.normal(1.0, 0.1, size=(len(units), num_replicates, num_layers))
    )


def rows_by_loops(panel, seeds, num):
    """Estimate, each seed alone, and `num` draws, each averaged over explicitly listed units."""
    from infoflow.foundation import stream

    shift = panel.replicates_URK.mean(axis=1) - panel.values_UK
    rows = [panel.values_UK.mean(axis=0)]
    rows += [np.mean([v for u, v in zip(panel.units, panel.values_UK, strict=True) if s in u], axis=0) for s in seeds]
    drawn = stream("findings", "seeds", len(seeds)).integers(len(seeds), size=(num, len(seeds)))
    for index in range(num):
        sample = [seeds[position] for position in drawn[index]]
        replicate = panel.replicates_URK[:, index % panel.num_replicates] - shift
        chosen = []
        for unit, curve in zip(panel.units, replicate, strict=True):
            if len(unit) == 1:
                chosen += [curve for seed in sample if seed == unit[0]]
            else:
                chosen += [curve for a in sample for b in sample if (a, b) == unit]
        rows.append(np.mean(chosen, axis=0) if chosen else np.full(panel.values_UK.shape[1], np.nan))
    return np.array(rows)


@pytest.mark.parametrize("units", [[(4,), (5,), (9,)], [(4, 5), (4, 9), (5, 9)], [(4,)]])
def test_resampled_curves_agree_with_loops(units):
    from infoflow.findings._bootstrap import NUM_DRAWS, resampled_curves

    panel = random_panel(units)
    seeds = sorted(panel.seeds)
    rows = resampled_curves({"curve": panel}, seeds)["curve"]
    np.testing.assert_allclose(rows, rows_by_loops(panel, seeds, NUM_DRAWS), rtol=1e-10)


def test_lists_of_replicates_are_cut_to_their_common_length():
    from infoflow.findings._bootstrap import NUM_DRAWS, resampled_curves

    long, short = random_panel([(1,), (2,)], num_replicates=9), random_panel([(1,), (2,)], num_replicates=4)
    rows = resampled_curves({"long": long, "short": short}, [1, 2])
    cut = make_panel(long.units, long.values_UK, long.replicates_URK[:, :4])
    np.testing.assert_allclose(rows["long"], rows_by_loops(cut, [1, 2], NUM_DRAWS))


def test_models_measured_on_the_same_sentences_stay_paired():
    """A constant difference between two noisy models has an interval of no width."""
    from infoflow.findings._bootstrap import resampled_curves

    first = random_panel([(1,), (2,), (3,)])
    second = make_panel(first.units, first.values_UK + 0.5, first.replicates_URK + 0.5)
    rows = resampled_curves({"first": first, "second": second}, [1, 2, 3])
    np.testing.assert_allclose(rows["second"] - rows["first"], 0.5)


def test_bias_of_resamples_is_removed_and_their_spread_kept():
    panel = random_panel([(1,), (2,)])
    recentred = panel.recentred(7)
    np.testing.assert_allclose(recentred.replicates_URK.mean(axis=1), panel.values_UK)
    np.testing.assert_allclose(recentred.replicates_URK.std(axis=1), panel.replicates_URK.std(axis=1))


def test_draws_do_not_depend_on_what_was_drawn_before():
    from infoflow.findings._bootstrap import draw

    first = draw(3, 10)
    draw(5, 10)
    again = draw(3, 10)
    np.testing.assert_array_equal(first.counts_NS, again.counts_NS)
    assert set(first.counts_NS.sum(axis=1)) == {3}
    np.testing.assert_array_equal(np.bincount(first.sentence_N), np.full(10, 200))


def test_interval_covers_the_mean_over_seeds_and_sentences():
    """With many seeds the 95 % interval of a mean covers the truth about 95 times in 100."""
    from infoflow.findings import Condition
    from infoflow.findings._bootstrap import resampled_curves
    from infoflow.findings._condition import judge
    from infoflow.foundation import stream

    covered = 0
    for trial in range(200):
        rng = stream("coverage", trial)
        seeds, sentences = rng.normal(0.0, 1.0, size=(20, 1)), rng.normal(0.0, 0.2)
        values = 3 + seeds + sentences  # sentences move all models together
        panel = make_panel([(s,) for s in range(20)], values, values[:, None] + rng.normal(0, 0.2, size=(1, 100, 1)))
        rows = resampled_curves({"curve": panel}, list(range(20)))["curve"]
        outcome = judge(Condition(name="", values=rows, labels=["x"], threshold=0.0, unit=""), 20, 1)
        covered += outcome.low <= 3 <= outcome.high
    assert 0.90 <= covered / 200 <= 0.99
