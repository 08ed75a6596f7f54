"""When a control takes the content out of a claim that holds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import Control, Finding, Table, evaluate, exceeds
from infoflow.results import Spec

from .test_claims import verdicts


def simple(curve, other, **conditions):
    """A claim of two conditions on two numbers of three seeds, and a control with other numbers."""

    def test(curves):
        first = {"threshold": 1.0, "unit": ""} | conditions.get("first", {})
        return [exceeds("first", curves["curve"][:, :1], **first), exceeds("second", curves["curve"][:, 1:], 1.0, "")]

    claimed, shown = (Table(name, Spec("masked-lm")).reduce(lambda rows: rows.numbers) for name in ("claimed", "shown"))
    finding = Finding(
        id="test:1", claim="", source="", published="", statistic="", test=test, learned=(), minimum_seeds=1,
        reads={"curve": claimed}, controls=(Control(name="the other", reads={"curve": shown}),),
    )  # fmt: skip
    return {"claimed": given(curve), "shown": given(other)}, finding


def given(numbers, noise=0.01):
    """Two numbers of three seeds, a row each, with replicates."""
    draws = noise * np.random.default_rng(0).standard_normal((3, 50, 2))
    rows = [
        {"objective": "masked-lm", "seed": seed, "trained": True, "value": value + 0.01 * (seed - 1)}
        | {"replicates": list(value + 0.01 * (seed - 1) + draws[seed, :, column])}
        for seed in range(3)
        for column, value in enumerate(numbers)
    ]
    return pd.DataFrame(rows)


def verdict(*args, **conditions):
    tables, finding = simple(*args, **conditions)
    return evaluate(tables, [finding]).iloc[0]


def test_a_control_that_meets_the_deciding_condition_alone_counts():
    """The first condition is the weaker one, so it decides."""
    assert verdict([1.5, 9.0], [0.0, 0.0])["verdict"] == "holds"
    row = verdict([1.5, 9.0], [1.2, 0.0])
    assert row["verdict"] == "undetermined"
    assert "The control shows it too: the other, 1.2" in row["reason"]
    assert verdict([1.5, 9.0], [0.0, 2.0])["verdict"] == "holds"


def test_a_condition_that_counts_with_others_only_is_not_shown_alone():
    first = {"alone": False}
    assert verdict([1.5, 9.0], [1.2, 0.0], first=first)["verdict"] == "holds"
    assert verdict([1.5, 9.0], [1.2, 2.0], first=first)["verdict"] == "undetermined"


def test_a_control_that_leaves_the_condition_as_it_is_says_nothing():
    assert verdict([1.5, 9.0], [1.5, 0.0])["verdict"] == "holds"


@pytest.mark.parametrize(("other", "wanted"), [(0.005, "holds"), (0.4, "undetermined")])
def test_a_control_passes_a_threshold_of_0_by_more_than_noise(other, wanted):
    assert verdict([0.5, 9.0], [other, 0.0], first={"threshold": 0.0})["verdict"] == wanted


@pytest.mark.parametrize(("other", "wanted"), [(0.005, "holds"), (0.4, "undetermined")])
def test_so_does_a_control_that_meets_every_condition(other, wanted):
    assert verdict([0.5, 9.0], [other, 2.0], first={"threshold": 0.0})["verdict"] == wanted


@pytest.mark.parametrize(("other", "wanted"), [(0.005, "holds"), (0.4, "undetermined")])
def test_so_does_a_control_that_is_made_of_the_claims_own_numbers(other, wanted):
    """Row by row it has an interval too; a transformation of the estimates alone has none."""
    tables, finding = simple([0.5, 9.0], [0.0, 0.0], first={"threshold": 0.0})

    def judged(transform):
        control = Control(name="made", reads=finding.reads, transform=transform)
        return evaluate(tables, [replace(finding, controls=(control,))]).iloc[0]["verdict"]

    assert judged(lambda curves: {"curve": curves["curve"] - [0.5 - other, 9.0]}) == wanted
    assert judged(lambda curves: {"curve": curves["curve"][:1] - [0.5 - other, 9.0]}) == "undetermined"


def test_a_claim_that_fails_fails_whatever_its_control():
    assert verdict([0.5, 9.0], [1.2, 0.0])["verdict"] == "fails"


def test_shuffled_labels_that_rise_alone_leave_compression_open(make_study):
    """The bias of the measure passes the least rise, without falling information about the input."""
    study = make_study()
    study.information["causal-lm", "clean", "output"] = 1.0 + 0.03 * np.arange(7)
    tables = study.tables()
    name = "representations:V-4"
    assert verdicts(tables, name).loc[name, "verdict"] == "holds"
    table = tables["mutual_information"]
    tables["mutual_information"] = table.assign(baseline=0.3 + 0.03 * table["layer"])
    row = verdicts(tables, name).loc[name]
    assert row["verdict"] == "undetermined"
    assert "The control shows it too: shuffled labels" in row["reason"]


def test_heads_that_do_nothing_together_do_not_show_that_single_ones_can_go(make_study):
    study = make_study()
    study.ablation["curve encoder-self random"] = np.full(5, 2.0)
    row = verdicts(study.tables(), "heads:M1").loc["heads:M1"]
    assert row["verdict"] == "fails"
    assert "with 80 % of these heads removed" in row["reason"]


def test_heads_are_counted_seed_by_seed(published):
    """Heads of different seeds do not correspond: one in each seed matters, each time another."""
    table = published["head_ablation"].copy()
    own = (table["removed"] == "head") & (table["stack"] == "encoder") & table["trained"]
    table.loc[own, "value"] = 0.0
    table.loc[own & (table["layer"] == table["seed"]) & (table["head"] == 0), "value"] = 0.02
    table["replicates"] = [[value] * 40 for value in table["value"]]
    row = verdicts(published | {"head_ablation": table}, "heads:M1").loc["heads:M1"]
    assert "nats per token: 0.0833 (" in row["note"]


def test_a_peak_is_one_layer_above_both_ends(make_study):
    """One layer lies above the top, another one above layer 1: neither is a peak."""
    study = make_study()
    study.tags["ccg", "masked-lm"] = np.array([0.50, 0.49, 0.52, 0.53, 0.54, 0.52])
    assert verdicts(study.tables(), "representations:V-16").loc["representations:V-16", "verdict"] == "holds"
    study.tags["ccg", "masked-lm"] = np.array([0.50, 0.49, 0.505, 0.51, 0.515, 0.60])
    assert verdicts(study.tables(), "representations:V-16").loc["representations:V-16", "verdict"] == "fails"


def test_interval_says_whose_choice_it_covers(make_study):
    names = ("representations:V-1", "heads:M5")
    assert set(verdicts(make_study(noise=0.001).tables(), *names)["covers"]) == {"seeds and sentences"}
    assert set(verdicts(make_study(seeds=(7,), noise=0.001).tables(), *names)["covers"]) == {"sentences"}
    assert set(verdicts({}, *names)["covers"]) == {""}
