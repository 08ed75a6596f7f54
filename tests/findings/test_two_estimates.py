"""Which of two estimates decides a claim about information: the one that returns the entropy at layer 0."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, evaluate

V1, V3, V4, V17, V18 = (f"representations:V-{number}" for number in (1, 3, 4, 17, 18))
FALLING = np.array([5.3, 5.25, 5.2, 5.15, 5.1, 5.05, 5.0])
LEVEL = np.full(7, 5.3)


@pytest.fixture
def tables_of(make_study):
    """Published clusters of a given entropy, and usable information of the same models on the input side."""

    def tables(usable, entropy=5.3, usable_entropy=5.3, untrained=LEVEL):
        plain = make_study().tables()
        clusters = plain["mutual_information"]
        clusters["entropy"] = np.where(clusters["regime"] == "training", 6.95, entropy)
        other = clusters[(clusters["side"] == "input") & (clusters["regime"] == "clean")].copy()
        curve = np.where(other["trained"], usable[other["layer"]], untrained[other["layer"]])
        moved = curve - other["value"]
        other = other.assign(
            value=curve,
            low=other["low"] + moved,
            high=other["high"] + moved,
            replicates=[[one + by for one in each] for each, by in zip(other["replicates"], moved, strict=True)],
            entropy=usable_entropy,
            types=1000,
        ).drop(columns="clustering_spread")
        return plain | {"usable_information": other}

    return tables


def verdict(tables, name):
    return evaluate(tables, [FINDINGS[name]]).iloc[0]


@pytest.mark.parametrize("name", [V1, V3, V4, V17, V18])
def test_a_run_without_usable_information_is_judged_as_before(make_study, name):
    tables = make_study().tables()
    alone = evaluate(tables, [replace(FINDINGS[name], another=None)])
    pd.testing.assert_frame_equal(evaluate(tables, [FINDINGS[name]]), alone)
    assert alone["verdict"].iloc[0] == "holds"


def test_two_that_agree_give_the_verdict_with_the_numbers_of_usable_information(tables_of):
    row = verdict(tables_of(FALLING), V1)
    assert row["verdict"] == "holds"
    assert row["effect"] == pytest.approx(0.05)  # the smallest step; its threshold is 0
    assert row["reason"].startswith("By usable information, ")
    assert row["reason"].split(" One seed")[0].endswith("By clusters: holds.")
    assert row["tables"] == "mutual_information, task_scores, usable_information"
    assert "By clusters: total fall" in row["note"]
    assert "spread of k-means" in row["note"]


def test_two_that_count_and_disagree_decide_nothing(tables_of):
    tables = tables_of(FALLING)
    assert evaluate(tables, [replace(FINDINGS[V3], another=None)])["verdict"].iloc[0] == "holds"
    row = verdict(tables, V3)
    assert row["verdict"] == "undetermined"
    assert row["reason"].startswith(
        "Two estimates disagree, by usable information: fails, and by clusters: holds. By usable information, "
    )


def test_clusters_that_miss_the_entropy_do_not_count(tables_of):
    row = verdict(tables_of(FALLING, entropy=6.0), V3)
    assert row["verdict"] == "fails"
    assert "By clusters (only 5.21 of 6 nats found at layer 0): holds." in row["reason"]


def test_usable_information_of_too_few_tokens_does_not_count(tables_of):
    row = verdict(tables_of(FALLING, usable_entropy=6.0), V3)
    assert row["verdict"] == "holds"
    assert row["reason"].startswith("By clusters, ")
    assert "By usable information (only 5.3 of 6 nats found at layer 0): fails." in row["reason"]


def test_of_two_that_both_miss_it_neither_decides_alone(tables_of):
    assert verdict(tables_of(FALLING, entropy=6.0, usable_entropy=6.0), V1)["verdict"] == "holds"
    assert verdict(tables_of(FALLING, entropy=6.0, usable_entropy=6.0), V3)["verdict"] == "undetermined"


def test_the_least_effect_is_what_a_converged_estimate_can_show(tables_of):
    small = 5.3 - 0.004 * np.arange(7)  # a clear fall at every layer, in all of .024 nats
    row = verdict(tables_of(small, entropy=6.0), V1)
    assert row["verdict"] == "fails"
    assert row["threshold"] == pytest.approx(0.03)


def test_a_claim_whose_other_readings_are_missing_goes_by_clusters(tables_of):
    """Only the clean input is in the table of usable information, and V-4 needs four curves."""
    row = verdict(tables_of(FALLING), V4)
    assert row["verdict"] == "holds"
    assert not row["reason"].startswith("By ")


def test_untrained_networks_by_neighbours_and_by_usable_information(tables_of):
    row = verdict(tables_of(FALLING), V18)
    assert row["verdict"] == "holds"
    assert row["reason"].startswith("By usable information, ")
    assert "By identity neighbours: holds." in row["reason"]
    lost = verdict(tables_of(FALLING, untrained=FALLING), V18)
    assert lost["verdict"] == "undetermined"
    assert "by usable information: fails" in lost["reason"]


@pytest.mark.parametrize("name", [f"representations:V-{number}" for number in (1, 2, 3, 4, 5, 17, 18)])
def test_a_claim_says_by_which_estimates_it_is_judged(name):
    assert "usable information" in FINDINGS[name].statistic
    assert "undetermined" in FINDINGS[name].statistic


def test_usable_information_without_a_control_leaves_the_verdict_to_clusters(tables_of):
    tables = tables_of(FALLING)
    usable = tables["usable_information"]
    row = verdict(tables | {"usable_information": usable[usable["trained"]]}, V1)
    assert row["verdict"] == "holds"
    assert row["reason"].startswith("By clusters, ")
