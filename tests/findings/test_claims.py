"""Every claim on tables where it is true, false, lost in noise, shown by its control too, or not to be tested."""

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, TASK_DISTANCES, evaluate
from infoflow.results import Spec

from .conftest import Study
from .groups import models_of

pytestmark = pytest.mark.slow

IDS = [
    *(f"representations:V-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)),
    *(f"representations:Z-{number}" for number in (1, 2, 3, 4, 5, 6)),
    *(f"heads:M{number}" for number in range(1, 7)),
    "heads:V6",
    "heads:V8",
]


def verdicts(tables, *names):
    return evaluate(tables, [FINDINGS[name] for name in names or IDS]).set_index("id")


def verdict(study, name):
    """Of one claim, on the tables that it reads."""
    return verdicts(study.tables(*FINDINGS[name].tables, "task_scores"), name).loc[name]


@pytest.mark.parametrize("noise", [0.0, 0.0001])
def test_published_curves_hold(make_study, noise):
    frame = verdicts(make_study(noise=noise, between=noise).tables())
    assert set(frame["verdict"]) == {"holds"}, frame["reason"].to_list()
    assert set(frame["seeds"]) == {3}


@pytest.mark.parametrize(
    ("name", "effect", "threshold"),
    [
        ("representations:V-1", 0.015, 0),  # layers 0→1: the weakest step
        ("representations:V-3", 5.10 - 4.935, 0.04),
        ("representations:V-5", 7.605 / 1.865, 1.5),
        ("representations:V-6", 0.408 - 0.332, 0.02),
        ("representations:V-7", 0.438 - 0.430, 0),
        ("representations:V-8", 0.430 - 0.423, 0),
        ("representations:V-10", 1.0, 0.62),
        ("representations:V-11", 1.0, 0.62),  # the causal LM's; the masked LM's .19 is farther from .62
        ("representations:V-12", 1.0, 1.2),
        ("representations:V-13", 0.976 - 0.916, 0.015),
        ("representations:V-14", 0.3, 0),  # translation, layers 1→2: the weakest step
        ("representations:V-15", 0.242 - 0.238, 0),
        ("representations:V-16", 0.573 - 0.569, 0),
        ("representations:V-17", 1 - 6 * 2 / (6 * 35), 0.8),
        ("representations:V-18", 0.0, 0.02),
    ],
)
def test_published_effects(published, name, effect, threshold):
    row = verdicts(published, name).loc[name]
    assert row["effect"] == pytest.approx(effect)
    assert row["threshold"] == threshold
    assert row["effects"] == pytest.approx([effect] * 3)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("representations:V-1", "total fall of the information about the input: 1.33 ("),
        ("representations:V-2", "minus that of the translation encoder: 0.59 ("),
        ("representations:V-4", "rise of the information about the output, causal LM: 0.535 ("),
        ("representations:V-4", "rise of the information about the output, masked LM: 1.6"),
        ("representations:V-8", "layer 1 to the top: 0.112 ("),
        ("representations:V-9", "last change of the masked LM over each earlier one: 1.23 ("),
        ("representations:V-10", "most frequent tokens over that of the rarest: 1.73 ("),
        ("representations:V-11", "layer 1 of the translation encoder: 2.68 ("),
        ("representations:V-11", "layer 1 of the masked LM: 0.192 ("),
        ("representations:V-12", "that token dropout removes: 0.627 ("),
        ("representations:V-14", "beyond that of the translation encoder: 1.1 ("),
        ("representations:V-15", "layer 2 of 6 to the top: 0.125 ("),
        ("representations:V-15", "token after, causal LM, layer 1 to the top: 0.031 ("),
        ("representations:V-15", "token before, translation encoder, layer 1 to the top: 0.098 ("),
        (
            "representations:V-16",
            "height of the masked LM's category at an inner layer over the top, or over layer 1 and 0.005 more",
        ),
        (
            "representations:V-16",
            "left part at an inner layer over the top, or over layer 1 and 0.012 more, whichever is less: 0.045 (",
        ),
        ("heads:V8", "mean confidence of the positional heads: 0.905 ("),
    ],
)
def test_every_condition_is_in_the_note(published, name, text):
    assert text in verdicts(published, name).loc[name, "note"]


def test_all_claims_are_evaluated_in_order(published):
    assert list(verdicts(published).index) == IDS


def test_layer_1_is_outside_the_claim_that_fails_there(published):
    curves = {name: reading.estimates(models_of(published)).mean()[0] for name, reading in TASK_DISTANCES.items()}
    closest, *others = curves.values()
    assert closest[0] > min(other[0] for other in others)
    assert verdicts(published, "representations:V-7").loc["representations:V-7", "verdict"] == "holds"


def test_seeds_that_disagree_leave_claims_undetermined(make_study):
    """No sentence noise at all: the interval comes from the seeds."""
    row = verdict(make_study(noise=0.0, between=0.3), "representations:V-13")
    assert row["verdict"] == "undetermined"
    assert min(row["effects"]) < 0.015 < max(row["effects"])


def _by_itself() -> set[str]:
    """Claims about each model by itself."""
    return {name for name, finding in FINDINGS.items() if finding.tables and finding.minimum_seeds == 1}


def test_one_seed_is_not_enough_to_compare_objectives_but_its_numbers_are_given(make_study):
    frame = verdicts(make_study(seeds=(7,), noise=0.001).tables())
    compared = frame.drop(list(_by_itself()), errors="ignore")
    assert len(compared) > 5
    assert set(compared["verdict"]) == {"not testable here"}
    with_numbers = compared.drop("representations:V-6")  # needs two seeds to be defined at all
    assert with_numbers["effect"].notna().all()
    assert (with_numbers["low"] <= with_numbers["effect"]).all()
    assert with_numbers["reason"].str.contains("needs 3 seeds of each objective, and there was 1").all()
    assert "two seeds" in frame.loc["representations:V-6", "reason"]


def test_one_seed_decides_what_concerns_a_model_by_itself_and_says_so(make_study):
    frame = verdicts(make_study(seeds=(7,), noise=0.001).tables())
    alone = frame[frame.index.isin(_by_itself())]
    assert {"representations:V-1", "representations:V-3", "representations:V-18"} <= set(alone.index)
    assert set(alone["verdict"].drop("representations:V-17")) == {"holds"}
    assert alone.loc["representations:V-17", "verdict"] == "undetermined"  # the masked LM's curve, as published
    assert (alone["seeds"] == 1).all()
    assert (
        alone["reason"]
        .str.endswith("One seed: the interval covers the choice of sentences, not of initial weights.")
        .all()
    )
    three = verdicts(make_study(noise=0.001).tables())
    assert not three["reason"].str.contains("One seed").any()


def like_trained(frame):
    """The untrained models' rows replaced by copies of the trained ones'."""
    if "trained" not in frame:
        return frame
    trained = frame[frame["trained"]]
    return pd.concat([trained, trained.assign(trained=False)])


@pytest.mark.parametrize("number", [1, 2, 4, 5, 6, 9, 13, 14, 15, 16, 8, 3, 7])
def test_claim_that_its_control_shows_does_not_hold(published, number):
    tables = {name: t if name == "task_scores" else like_trained(t) for name, t in published.items()}
    name = {8: "heads:V8"}.get(number, f"representations:V-{number}")
    if number == 7:  # its deciding control is the baseline of shuffled rows
        tables["model_distance"] = published["model_distance"].assign(baseline=lambda frame: frame["value"])
    row = verdicts(tables, name).loc[name]
    assert row["verdict"] == "undetermined"
    assert "The control shows it too" in row["reason"]
    assert "which satisfies the claim too" in row["note"]


def test_divergence_that_seeds_show_too_does_not_hold(make_study):
    study = make_study()
    study.seed_distance = dict(zip(study.seed_distance, study.task_distance.values(), strict=True))
    row = verdict(study, "representations:V-8")
    assert (row["verdict"], row["control_name"]) == ("undetermined", "seeds of one objective")


def test_syntax_profile_without_categories_is_not_testable(published):
    table = published["tag_neighbours"]
    published["tag_neighbours"] = table.assign(tag=table["tag"].replace({"ccg": "upos"}))
    row = verdicts(published, "representations:V-16").loc["representations:V-16"]
    assert row["verdict"] == "not testable here"
    assert "ag_neighbours has no matching rows with tag ccg of the trained masked LM" in row["reason"]
    del published["tag_neighbours"]
    assert "The table tag_neighbours is absent" in verdicts(published, "representations:V-16")["reason"].iloc[0]


def test_syntax_profile_that_translation_shows_too_does_not_hold(make_study):
    study = make_study()
    for tag, objective in (("ccg", "masked-lm"), ("ccg_left", "causal-lm"), ("ccg_right", "causal-lm")):
        study.tags[tag, "translation"] = study.tags[tag, objective]
    study.tags["ccg", "masked-lm"] = study.tags["ccg", "translation"] = 0.5 + study.position["masked-lm"] * 0
    study.tags["ccg", "masked-lm"][2] = study.tags["ccg", "translation"][2] = 0.51
    study.tags["ccg", "masked-lm"][0] = study.tags["ccg", "translation"][0] = 0.44
    row = verdict(study, "representations:V-16")
    assert row["verdict"] == "undetermined"
    assert row["control_name"] == "translation encoder instead of the language models"


def test_flat_untrained_network_says_nothing_where_the_trained_one_is_flat_too(make_study):
    study = make_study()
    study.identity["causal-lm"] = np.full(6, 0.9)
    row = verdict(study, "representations:V-18")
    assert row["verdict"] == "undetermined"
    assert row["control"] == 0


def test_agreement_over_three_layers_is_within_chance(make_study):
    """Three layers have six orders: perfect agreement comes by chance in one of six."""
    study = make_study()
    study.information = {key: 5 - 0.1 * np.arange(4) for key in study.information}
    study.untrained_information = {key: np.full(4, 4.0) for key in study.information}
    study.identity = {key: 0.9 - 0.1 * np.arange(3) for key in study.identity}
    study.untrained_identity = {key: np.full(3, 0.9) for key in study.identity}
    row = verdict(study, "representations:V-17")
    assert (row["verdict"], row["effect"]) == ("undetermined", 1)
    assert row["control"] == 1


def test_spread_of_clustering_counts_as_a_control(published):
    table = published["mutual_information"]
    published["mutual_information"] = table.assign(clustering_spread=5.0)
    row = verdicts(published, "representations:V-3").loc["representations:V-3"]
    assert row["control_name"] == "spread of k-means over its seeds"
    assert row["control"] > 1
    published["mutual_information"] = table.assign(clustering_spread=np.nan)
    row = verdicts(published, "representations:V-3").loc["representations:V-3"]
    assert row["verdict"] == "holds"
    assert "spread of k-means over its seeds: not measured" in row["note"]


@pytest.fixture(scope="module", params=["causal-lm", "masked-lm", "translation"])
def unlearned(request):
    """An objective whose models have learned nothing, and the claims then."""
    study = Study()
    study.loss[request.param] = (5.4, 5.5)
    return request.param, verdicts(study.tables())


@pytest.mark.parametrize("name", IDS)
def test_model_that_has_not_learned_is_named_with_its_number(unlearned, name):
    objective, found = unlearned
    row = found.loc[name]
    if Spec(objective) in FINDINGS[name].learned:
        assert row["verdict"] == "not testable here"
        for seed in (1, 2, 3):
            assert f"The model {objective}/seed-{seed} has not learned its task: 5.4 (5.3 to 5.5)" in row["reason"]
        assert np.isfinite(row["effect"])
    else:
        assert row["verdict"] == "holds"


def test_seeds_that_did_not_learn_are_left_out_where_three_remain(make_study):
    tables = make_study(seeds=(1, 2, 3, 4)).tables()
    scores = tables["task_scores"]
    failed = (scores["objective"] == "causal-lm") & (scores["seed"] == 2)
    tables["task_scores"] = scores.assign(high=scores["high"].where(~failed, 9.0))
    row = verdicts(tables, "representations:V-1").loc["representations:V-1"]
    assert (row["verdict"], row["seeds"], len(row["effects"])) == ("holds", 3, 3)
    assert "causal-lm/seed-2 has not learned" in row["note"]


def test_the_ablation_that_was_not_trained_is_named(published):
    for name in ("influence_by_frequency", "task_scores"):
        published[name] = published[name][published[name]["objective"] != "translation+token-dropout"]
    row = verdicts(published, "representations:V-12").iloc[0]
    assert row["verdict"] == "not testable here"
    assert "no translation encoder trained with token dropout among the models" in row["reason"]


def test_an_ablation_that_has_not_learned_to_translate_tests_nothing(published):
    scores = published["task_scores"].copy()
    bleu = (scores["objective"] == "translation+token-dropout") & (scores["metric"] == "bleu")
    scores.loc[bleu, ["value", "low", "high"]] = 2.0
    row = verdicts(published | {"task_scores": scores}, "representations:V-12").iloc[0]
    assert row["verdict"] == "not testable here"
    assert "translation+token-dropout/seed-1 has not learned its task: BLEU" in row["reason"]


def test_bins_in_random_order_do_not_show_the_claims_of_frequency(published):
    for name in ("representations:V-10", "representations:V-11"):
        row = verdicts(published, name).iloc[0]
        assert "control, permuted frequency bins" in row["note"]
        assert "which satisfies the claim too" not in row["note"]


def test_change_that_does_not_depend_on_frequency_fails_like_its_permutation(make_study):
    study = make_study(noise=0.0005, between=0.0005)
    for objective, grid in study.change_by_rank.items():
        study.change_by_rank[objective] = np.full_like(grid, 0.05)
    row = verdict(study, "representations:V-10")
    assert row["verdict"] == "fails", row["reason"]
