"""The claims about tuned models on invented tables: where they hold, and what makes each fail or leaves it open."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from infoflow.findings import FINDINGS, evaluate

from .adapted_tables import CHANGE, EMBEDDINGS, GAIN, SWAPS, Adapted

pytestmark = pytest.mark.slow

NAMES = [f"A-{number}" for number in range(1, 13)]


def verdict(name: str, given: Adapted, **changes):
    finding = FINDINGS[f"adaptation:{name}"]
    needed = [table for table in finding.tables if table not in changes]
    tables = {
        **(given.tables(needed) if needed else {}),
        **{table: frame for table, frame in changes.items() if frame is not None},
    }
    return evaluate(tables, [finding]).iloc[0]


def changed(**values) -> Adapted:
    given = Adapted()
    for name, value in values.items():
        own = getattr(given, name)
        setattr(given, name, {**own, **value} if isinstance(own, dict) else value)
    return given


@pytest.mark.parametrize("name", NAMES)
def test_it_holds_where_every_number_is_as_claimed(name):
    found = verdict(name, Adapted())
    assert found["verdict"] == "holds", (found["reason"], found["note"])


def test_frozen_features_that_are_better_in_the_domain_alone_refute_it_too():
    found = verdict("A-2", changed(frozen={"continued": -0.04}))
    assert found["verdict"] == "fails"
    assert "at after pretraining on the domain" in found["reason"]


def test_the_gains_of_the_source_itself_hold():
    """3.58 points without pretraining on the domain and 3.26 with it."""
    assert verdict("A-2", changed(frozen={"as-is": 0.0358, "continued": 0.0326}))["verdict"] == "holds"


def test_a_gain_of_span_masking_that_is_as_large_on_texts_fails():
    found = verdict("A-10", changed(less={"spanbert": -0.05}, span_gain={"spanbert": -0.02}))
    assert found["verdict"] == "fails"
    assert "whole texts" in found["reason"]


SHOWN_BY = {
    "A-1": ({"change": {False: CHANGE[True]}}, "untrained model, tuned"),
    "A-2": (
        {"shuffled": 0.6, "frozen": {"continued": 0.10}},
        "shuffled labels, fully tuned, against the frozen features",
    ),
    "A-3": ({"shuffled": 0.6}, "shuffled labels in place of the domain"),
    "A-4": ({"shuffled": 0.6}, "shuffled labels in place of both"),
    "A-7": ({"untrained_less": {"causal-lm": 0.1}}, "untrained models, tuned"),
    "A-9": ({"scratch": dict.fromkeys(("opinions", "tags", "questions"), 0.6), "gain": {1000: 0.0},
             "less": {"masked-lm": 0.0}}, "all pretraining dropped: untrained model"),
    "A-11": ({"untrained_swaps": SWAPS}, "untrained model, tuned"),
    "A-12": ({"untrained_common": 1.0}, "untrained model, tuned"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_control_that_shows_it_too_leaves_it_open(name):
    changes, control = SHOWN_BY[name]
    found = verdict(name, changed(**changes))
    assert (found["verdict"], found["control_name"]) == ("undetermined", control), (found["reason"], found["note"])


def test_span_masking_that_shows_before_training_leaves_it_open():
    given = Adapted()
    given.untrained_less = {"masked-lm": 0.05}
    tables = given.tables()
    scores = tables["tuned_scores"]
    texts = ~scores["trained"] & (scores["objective"] == "masked-lm") & (scores["shape"] != "span")
    shifted = scores.assign(
        value=scores["value"] + 0.05 * texts,
        replicates=[
            list(np.asarray(row) + 0.05 * bool(text)) for row, text in zip(scores["replicates"], texts, strict=True)
        ],
    )
    assert verdict("A-10", given, tuned_scores=shifted)["verdict"] == "undetermined"


def test_scores_that_order_nothing_leave_the_order_open():
    """Where strategies score alike, seeds of tuning do not order them either."""
    given = Adapted(noise=0.02)
    given.strategies = dict.fromkeys(given.strategies, 0.0)
    assert verdict("A-5", given)["verdict"] in ("undetermined", "fails")
    found = verdict("A-5", changed(strategies={"scratch": 0.0, "continued": 0.0}))
    assert found["verdict"] == "undetermined"


MISSING = {
    "A-2": ({"method": "frozen"}, "was tuned with a frozen body"),
    "A-3": ({"strategy": ("continued", "scratch")}, "pretrained on a domain was tuned in full"),
    "A-4": ({"strategy": ("scratch",)}, "pretrained on a domain alone was tuned in full"),
    "A-5": ({"strategy": ("scratch",)}, "an order needs three strategies"),
    "A-6": ({"examples": (50, 200)}, "on few and on many labelled examples"),
    "A-7": ({"objective": "causal-lm"}, "there is no causal LM"),
    "A-8": ({"objective": "drop-tokens"}, "dropped tokens"),
    "A-9": ({"objective": "masked-lm-nsp"}, "masked LM with next-sentence prediction"),
    "A-10": ({"shape": "span"}, "no common task of the shapes span"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_arm_is_named(name):
    without, reason = MISSING[name]
    scores = Adapted().tables(["tuned_scores"])["tuned_scores"]
    ((column, values),) = without.items()
    left = scores[~scores[column].isin(values if isinstance(values, tuple) else [values])]
    found = verdict(name, Adapted(), tuned_scores=left)
    assert found["verdict"] == "not testable here"
    assert reason.lower() in found["reason"].lower(), found["reason"]


def test_controls_that_were_not_measured_are_named():
    tables = Adapted().tables()
    for table, name in (("tuned_scores", "A-7"), ("tuning_change", "A-1")):
        frame = tables[table]
        left = frame[frame["trained"] & (frame["control"] == "")]
        found = verdict(name, Adapted(), **{table: left})
        assert found["reason"] == "No control was measured."
        assert "not measured (no untrained " in found["note"]


@pytest.mark.parametrize("tied", [-0.5, 0.0, 0.5])
def test_what_embeddings_regain_counts_for_neither_side(tied):
    """Lower blocks are taken back with the embeddings, and with an output matrix that is tied to them."""
    swaps = Adapted().tables(["layer_swaps"])["layer_swaps"]
    lower = (swaps["rewound"] == "lower") & (swaps["quantity"] == "pretraining-loss") & swaps["trained"]
    shifted = swaps.assign(
        value=swaps["value"] - tied * lower,
        replicates=[list(np.asarray(row) - tied * own) for row, own in zip(swaps["replicates"], lower, strict=True)],
    )
    found = verdict("A-11", Adapted(), layer_swaps=shifted)
    gaps = [low - EMBEDDINGS["pretraining-loss"] + 3.0 - up for low, up in zip(*SWAPS.values(), strict=True)]
    assert found["verdict"] == "holds"
    assert found["effect"] == pytest.approx(np.mean(gaps), abs=0.01)


def test_what_embeddings_regain_must_be_told():
    swaps = Adapted().tables(["layer_swaps"])["layer_swaps"]
    left = swaps[(swaps["rewound"] != "lower") | (swaps["blocks"] > 0)]
    assert "what the embeddings alone regain" in verdict("A-11", Adapted(), layer_swaps=left)["reason"]


def test_heads_of_which_only_noise_is_known_cannot_disagree():
    found = verdict("A-12", Adapted(noise=1.0))
    assert found["verdict"] in ("not testable here", "undetermined")
    reasons = {verdict("A-12", changed(noise=noise, common=0.0))["reason"] for noise in (0.05, 0.1, 0.3)}
    assert any("hardly agrees with itself" in reason for reason in reasons)


def test_what_compares_models_needs_three_seeds():
    alone = {"A-1", "A-11", "A-12"}
    for name in NAMES:
        assert FINDINGS[f"adaptation:{name}"].minimum_seeds == (1 if name in alone else 3)
    assert verdict("A-7", Adapted(seeds=(1,)))["verdict"] == "not testable here"


def slow_mean(frame, task, **where):
    """The mean score of each pretraining seed, one row after the other."""
    sums = {}
    for row in frame.to_dict("records"):
        own = row["task"] == task and row["part"] == "test" and row["main"]
        if own and all(row[column] == value for column, value in where.items()):
            sums.setdefault(row["seed"], []).append(row["value"])
    return {seed: sum(values) / len(values) for seed, values in sums.items()}


def test_effects_are_those_of_a_plain_loop():
    frame = Adapted().tables(["tuned_scores"])["tuned_scores"]
    where = {"method": "full", "strategy": "as-is", "control": "", "trained": True}
    gains = []
    for task in ("opinions", "tags", "questions"):
        masked, causal = (
            slow_mean(frame, task, objective=one, examples=1000, **where) for one in ("masked-lm", "causal-lm")
        )
        gains += [masked[seed] - causal[seed] for seed in masked]
    assert verdict("A-7", Adapted())["effect"] == pytest.approx(np.mean(gains))
    ends = {}
    for size in GAIN:
        for task in ("opinions", "tags", "questions"):
            with_it, without = (
                slow_mean(frame, task, objective="masked-lm", examples=size, **where | {"trained": trained})
                for trained in (True, False)
            )
            ends.setdefault(size, []).extend(with_it[seed] - without[seed] for seed in with_it)
    note = verdict("A-6", Adapted())["note"]
    assert f"minus that with most: {np.mean(ends[50]) - np.mean(ends[1000]):.3g} (" in note


def test_agreement_of_heads_is_spearmans():
    given = changed(common=0.6)
    heads = given.tables(["tuning_heads"])["tuning_heads"]
    found = []
    for seed in given.seeds:
        own = heads[(heads["objective"] == "masked-lm") & heads["trained"] & (heads["seed"] == seed)]
        tasks = [rows.sort_values(["layer", "head"])["value"].to_numpy() for _, rows in own.groupby("task")]
        found += [spearmanr(tasks[a], tasks[b]).statistic for a, b in ((0, 1), (0, 2), (1, 2))]
    assert verdict("A-12", given)["effect"] == pytest.approx(np.mean(found))


def test_rows_in_another_order_change_nothing():
    tables = Adapted().tables()
    mixed = {name: frame.sample(frac=1, random_state=1, ignore_index=True) for name, frame in tables.items()}
    findings = [FINDINGS[f"adaptation:{name}"] for name in NAMES]
    both = [evaluate(one, findings)["effect"] for one in (tables, mixed)]
    np.testing.assert_allclose(*both)
