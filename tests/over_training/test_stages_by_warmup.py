"""How much later n-gram stages come with a longer warm-up: INVENTED curves whose minima are known."""

import numpy as np
import pandas as pd
import pytest

from infoflow.foundation import UserError
from infoflow.over_training import STAGES_BY_WARMUP, WarmedUp, stages_by_warmup

STEPS = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
N = 1024


def rates(warmup: int) -> np.ndarray:
    """Sum of a rate that rises to 1 over the warm-up and stays, until each update."""
    return np.cumsum(np.concatenate([[0.0], np.minimum(np.arange(1, N + 1) / warmup, 1.0)]))


def study(name: str, warmup: int, minima: dict[int, int], seeds=(0, 1), drawn: dict[int, int] | None = None):
    """`minima`: order → update; `drawn`: the same in each replicate."""
    sums = rates(warmup)
    rows = []
    for seed in seeds:
        for order, minimum in minima.items():
            for update in STEPS:
                at = [abs(np.log2(max(update, 0.5) / one)) for one in (minimum, (drawn or minima)[order])]
                rows.append(
                    {"model": f"causal-lm/seed-{seed}", "objective": "causal-lm", "variant": "", "architecture": "bert",
                     "start": "", "seed": seed, "update": update, "trained": update > 0, "order": order,
                     "context": "before", "measure": "kl_from_ngram", "lr_share": sums[update] / sums[-1],
                     "value": at[0], "replicates": [at[1]] * 5}
                )  # fmt: skip
    return WarmedUp(name=name, warmup=warmup, rates=sums[-1], agreement=pd.DataFrame(rows))


def number(table: pd.DataFrame, compared: str, measure: str, order: int = 1, seed: int = 0) -> pd.Series:
    own = table.query("compared == @compared and measure == @measure and order == @order and seed == @seed")
    assert len(own) == 1
    return own.iloc[0]


def test_the_same_sum_of_learning_rates_is_twice_as_many_updates_inside_the_warm_up():
    table = stages_by_warmup(study("a", 128, {1: 32, 2: 64}), study("b", 512, {1: 64, 2: 64}, drawn={1: 128, 2: 64}))
    assert list(table.columns) == STAGES_BY_WARMUP.column_names
    updates, sums = (number(table, "warm-up", measure) for measure in ("updates", "rates"))
    assert updates["value"] == 1
    short, long = (np.arange(1, at + 1).sum() / warmup for at, warmup in ((32, 128), (64, 512)))  # the slow way
    assert sums["value"] == pytest.approx(np.log2(long / short))
    assert abs(sums["value"]) < 0.05
    assert updates["replicates"] == [2.0] * 5
    assert (updates["warmup"], updates["other_warmup"], updates["update"], updates["gap"]) == (128, 512, -1, 1)
    assert number(table, "warm-up", "updates", order=2)["value"] == 0
    assert number(table, "warm-up", "rates", order=2)["value"] == pytest.approx(-2)


def test_seeds_with_the_same_warm_up_stand_beside_it():
    one, long = study("a", 128, {1: 32}, seeds=(0,)), study("b", 512, {1: 64})
    both = WarmedUp(
        name="a", warmup=128, rates=one.rates,
        agreement=pd.concat([one.agreement, study("a", 128, {1: 16}, seeds=(1,)).agreement]),
    )  # fmt: skip
    table = stages_by_warmup(both, long)
    assert number(table, "seed", "updates", seed=0)["value"] == -1
    assert number(table, "seed", "updates", seed=1)["value"] == 1
    assert number(table, "seed", "updates", seed=1)["other_seed"] == 0
    alone = stages_by_warmup(one, long)
    assert set(alone["compared"]) == {"warm-up"}
    assert set(alone["seed"]) == {0}  # that both have


@pytest.mark.parametrize("edge", [1, N])
def test_a_minimum_at_an_end_is_no_stage(edge: int):
    table = stages_by_warmup(study("a", 128, {1: 32}), study("b", 512, {1: edge}))
    assert np.isnan(number(table, "warm-up", "updates")["value"])


def test_the_sampled_losses_and_later_neighbours_are_no_divergences():
    plain, other = study("a", 128, {1: 32}), study("b", 512, {1: 64})
    extra = plain.agreement.assign(measure="loss_on_samples", value=0.0)
    after = plain.agreement.assign(context="after", value=0.0)
    mixed = WarmedUp(name="a", warmup=128, rates=plain.rates, agreement=pd.concat([plain.agreement, extra, after]))
    pd.testing.assert_frame_equal(
        pd.DataFrame(stages_by_warmup(mixed, other)), pd.DataFrame(stages_by_warmup(plain, other))
    )


@pytest.mark.parametrize("warmup", [0, 128, 256])
def test_the_second_warm_up_must_be_four_times_the_first(warmup: int):
    with pytest.raises(UserError, match=r"must be 4 times the first\. Got 128 updates in a and"):
        stages_by_warmup(study("a", 128, {1: 32}), study("b", max(warmup, 1), {1: 64}))
