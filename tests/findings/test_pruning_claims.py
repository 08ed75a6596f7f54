"""Claims about pruned models on tables where they hold, fail, are left open, or cannot be tested."""

from math import comb

import numpy as np
import pandas as pd
import pytest
from pruning.synthetic import COST, LEFT, RECOVERED, ROLES, SHARES, Sweeps, task_scores

from infoflow.findings import FINDINGS, evaluate, removable
from infoflow.subjects.pruning.claims import alive_by_kind

from .groups import models_of

pytestmark = pytest.mark.slow

IDS = [f"heads:V{number}" for number in range(1, 6)]
SEEDS = (1, 2, 3, 4, 5)  # of 5 functions and 16 gates each, enough for Wilson's intervals


def verdicts(sweeps: Sweeps, *names, **changes):
    asked = [FINDINGS[name] for name in names or IDS]
    own = sweeps.tables(*{table for one in asked for table in one.tables})
    tables = own | {"task_scores": task_scores(sweeps)} | changes
    kept = {name: table for name, table in tables.items() if table is not None}
    return evaluate(kept, asked).set_index("id")


def verdict(name, sweeps=None, **changes):
    return verdicts(sweeps or Sweeps(), f"heads:{name}", **changes).iloc[0]


@pytest.fixture(scope="module")
def held():
    return verdicts(Sweeps(seeds=SEEDS))


def test_all_hold_where_they_are_true(held):
    assert set(held["verdict"]) == {"holds"}, held["reason"].to_list()
    assert set(held["seeds"]) == {5}
    few = verdicts(Sweeps())
    assert list(few["verdict"]) == ["holds"] * 3 + ["undetermined"] * 2
    assert list(few["seeds_needed"])[3:] == [4, 5]  # of V4 16 functions, of V5 73 gates
    assert list(held["control_name"]) == [
        "as many random heads, without further training",
        "converged model with as many random heads instead of the pruned one",
        "random orders of all heads",
        "as many random heads of the converged model (expected share)",
        "gates without a penalty",
    ]


def test_effects_are_those_of_the_curves(held):
    quiet = verdicts(Sweeps(between=0.0), "heads:V1", "heads:V2")
    costs = [4.0 * ((16 - left) / 16) ** 9 for left in LEFT]
    cheap = max(place for place, cost in enumerate(costs) if cost <= 0.5)
    part = (0.5 - costs[cheap]) / (costs[cheap + 1] - costs[cheap])
    share = (16 - LEFT[cheap] + part * (LEFT[cheap] - LEFT[cheap + 1])) / 16
    assert quiet.loc["heads:V1", "effect"] == pytest.approx(share)
    removed = [1 - sum(SHARES[kind][point] for kind in SHARES) / 3 for point in range(1, 6)]
    kept = [1 - sum(round(16 * SHARES[kind][point]) for kind in SHARES) / 48 for point in range(1, 6)]
    assert kept == pytest.approx(removed, abs=0.02)
    gap = np.mean([6 * share**5 - 4 * share**9 for share in kept])
    assert quiet.loc["heads:V2", "effect"] == pytest.approx(gap)
    assert quiet.loc["heads:V2", "unit"] == "BLEU"
    assert held.loc["heads:V4", "effect"] == 1.0
    chances = [1 - comb(16 - holders, 6) / comb(16, 6) for holders in (3, 1, 1, 2, 1)]
    assert held.loc["heads:V4", "control"] == pytest.approx(np.mean(chances))
    assert held.loc["heads:V5", "effect"] == 0
    assert held.loc["heads:V5", "control"] == 1


def test_what_was_trained_on_is_as_good_and_better_than_random_heads():
    held = verdict("H2", Sweeps(recovers=True, between=0.0))
    assert held["verdict"] == "holds", held["reason"]
    assert held["unit"] == "BLEU"
    from infoflow.subjects.pruning.claims import recovered_gaps

    found = recovered_gaps().estimates(models_of(Sweeps(recovers=True, between=0.0).tables())).values_UK
    np.testing.assert_allclose(found, [[0.4, -0.1, 1.0, 0.04, -0.01, 0.1]] * 3)
    assert verdict("H2", Sweeps(recovers=True, metrics=("loss",)))["unit"] == "nats per token"


@pytest.mark.parametrize(
    "gains",
    [
        {"recovered": -1.0, "recovered-random": -2.0},  # it does not come back
        {"recovered": 0.4, "recovered-random": 0.9},  # random heads are better
        {"recovered-all": 5.0},  # more training does much more for all heads
    ],
)
def test_what_does_not_come_back_or_is_no_better_than_chance_fails(gains):
    assert verdict("H2", Sweeps(recovers=True, recovered=RECOVERED | gains))["verdict"] == "fails"


def test_it_is_told_what_is_missing_to_be_trained_on():
    assert "set recover in the plan's [pruning]" in verdict("H2")["reason"]
    few = verdict("H2", Sweeps(recovers=True, left=(16, 15, 14, 13, 12, 11)))
    assert "o point with fewer than half of the encoder's heads left was trained further" in few["reason"]


def test_the_point_nearest_to_ten_of_48_is_read():
    tables = Sweeps(recovers=True, between=0.0, noise=0.0).tables()
    rows = tables["pruning"]
    other = rows["method"].str.startswith("recovered") & (rows["kept_encoder_self"] != 3) & (rows["scope"] != "")
    rows.loc[other, "value"] -= 20.0  # 3 of 16 are nearest to 10 of 48
    from infoflow.subjects.pruning.claims import recovered_gaps

    found = recovered_gaps().estimates(models_of(tables)).values_UK
    np.testing.assert_allclose(found[:, :3], [[0.4, -0.1, 1.0]] * 3)


def test_alive_shares_are_means_over_the_sweep():
    found = alive_by_kind().estimates(models_of(Sweeps().tables()))
    expected = [np.mean([round(16 * share) / 16 for share in SHARES[kind][1:]]) for kind in SHARES]
    np.testing.assert_allclose(found.values_UK[:, :3], [expected] * 3)
    assert (found.values_UK[:, 3:] > 0.3).all()
    uniform = alive_by_kind(uniform=True).estimates(models_of(Sweeps().tables()))
    np.testing.assert_allclose(uniform.values_UK[:, :3], np.mean(expected))


def test_layers_belong_to_the_claim_on_kinds():
    row = verdict("V3", Sweeps(turned=True))
    assert row["verdict"] == "fails"
    assert "the half of the layers that keeps them" in row["reason"]


def test_without_scores_of_the_unpruned_model_intervals_are_wider_but_the_share_is_the_same():
    tables = Sweeps().tables()
    pruning = tables["pruning"]
    paired = verdict("V1", **tables)
    alone = verdict("V1", **tables | {"pruning": pruning[pruning["kept"] < pruning["total"]]})
    assert alone["effect"] == pytest.approx(paired["effect"])
    assert alone["high"] - alone["low"] > 1.2 * (paired["high"] - paired["low"])
    whole = pruning[(pruning["kept"] == pruning["total"]) & (pruning["method"] == "random")]
    unpruned = whole.assign(method="unpruned", point=-1)
    told = verdict("V1", **tables | {"pruning": pd.concat([unpruned, pruning[pruning["kept"] < pruning["total"]]])})
    assert (told["low"], told["high"]) == pytest.approx((paired["low"], paired["high"]))


CONTROLLED = {
    "V1": {"cost": COST | {"random": COST["hard-concrete"]}},
    "V2": {"cost": COST | {"random": (0.5, 9.0)}},
    "V4": {"roles": dict.fromkeys(ROLES, tuple((layer, head) for layer in range(4) for head in range(4)))},
    "V5": {"undecided": (0, 0, 0, 0, 0, 0)},
}


@pytest.mark.parametrize("name", CONTROLLED)
def test_a_control_that_shows_it_too_leaves_it_open(name):
    row = verdict(name, Sweeps(**CONTROLLED[name], draws=1, seeds=SEEDS))
    assert row["verdict"] == "undetermined", row["note"]
    assert "The control shows it too" in row["reason"]


def test_the_loss_stands_in_for_bleu():
    rows = verdicts(Sweeps(metrics=("loss",)), "heads:V1", "heads:V2")
    assert set(rows["verdict"]) == {"holds"}, rows["note"].to_list()
    assert rows.loc["heads:V2", "unit"] == "nats per token"
    only_encoder = verdict("V2", Sweeps(scopes=("encoder-self",)))
    assert only_encoder["verdict"] == "holds"


@pytest.mark.parametrize(
    ("name", "sweeps", "changes", "reason"),
    [
        ("V1", {}, {"pruning": None}, "The table pruning is absent: a plan with [pruning] on = true makes it"),
        ("V1", {"methods": ("random",)}, {}, "heads of the encoder were chosen by method hard-concrete"),
        ("V1", {"methods": ("hard-concrete",)}, {}, "No control was measured"),
        ("V1", {"left": (16,) * 6}, {}, "removed a head of the encoder"),
        ("V2", {"methods": ("hard-concrete", "random")}, {}, "heads of the encoder were chosen by method scratch"),
        ("V3", {"scopes": ("encoder-self",)}, {}, "heads (scope all) were chosen by method hard-concrete"),
        ("V3", {}, {"pruned_heads": None}, "The table pruned_heads is absent"),
        ("V4", {"left": (16, 15, 14, 13, 12, 11)}, {}, "left fewer than half of the encoder's heads"),
        ("V4", {}, {"pruned_roles": None}, "The table pruned_roles is absent"),
        ("V4", {"roles": {}}, {}, "The table pruned_roles is absent"),
        ("V5", {"penalties": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)}, {}, "No control was measured"),
    ],
)
def test_what_is_missing_is_named(name, sweeps, changes, reason):
    row = verdict(name, Sweeps(**sweeps), **changes)
    assert row["verdict"] == "not testable here"
    assert reason in row["reason"], row["reason"]


def test_a_sweep_that_begins_above_0_says_how_to_test_it():
    row = verdict("V5", Sweeps(penalties=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)))
    assert "the sweep begins at a penalty of 0.1: let the plan's penalties begin at 0" in row["note"]


def test_every_column_that_a_claim_reads_is_required():
    tables = Sweeps(draws=1).tables()
    shown = ("model", "trained", "low", "high", "count", "gate", "score", "baseline", "kept_encoder_self", "signature")
    shown = (*shown, "scope")  # a table without it is of an earlier version
    for source, table in tables.items():
        claims = [FINDINGS[name] for name in IDS if source in FINDINGS[name].tables]
        for column in set(table) - set(shown):
            rows = evaluate(tables | {source: table.drop(columns=column)}, claims)
            damaged = rows[~rows["reason"].str.contains("has learned its task")]
            assert len(damaged), (source, column)
            assert damaged["reason"].str.contains(f"The table {source} has no column").all(), (source, column)


def test_one_seed_is_not_enough_but_its_numbers_are_given():
    rows = verdicts(Sweeps(seeds=(4,)))
    assert set(rows["verdict"]) == {"not testable here"}
    assert rows["effect"].notna().all()


def test_the_removable_share_is_where_the_curve_first_costs_too_much():
    removed = np.array([0.2, 0.5, 0.9])
    costs = np.array([[0.1, 0.5, 2.5], [0.1, -0.2, 0.9], [2.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(removable(removed, costs), [0.6, 0.9, 0.1, 0.9])
