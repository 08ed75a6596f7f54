"""Controls made of a claim's own trainings, against explicit loops; claims that no control could show; noise."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import Agreement, Finding, Table, evaluate, exceeds, layers_in_any_order, seeds_alone
from infoflow.results import Samples, Spec

A, B, C = Spec("masked-lm"), Spec("causal-lm"), Spec("translation")


def rows_of(objective: Spec, seeds: list, noise: float = 1e-4) -> pd.DataFrame:
    """A table of one number, or one for each layer, of each seed."""
    draws = np.random.default_rng(0)
    rows = [
        {"objective": objective.name, "seed": seed, "trained": True, "layer": layer, "value": value}
        | {"replicates": list(value + noise * draws.standard_normal(50))}
        for seed, values in enumerate(seeds)
        for layer, value in enumerate(np.atleast_1d(values))
    ]
    return pd.DataFrame(rows)


def read(objective: Spec):
    return Table("numbers", objective).reduce(lambda rows: rows.numbers)


READS = {"a": read(A), "b": read(B)}


def claim(controls, threshold: float = 0.0, reads=READS, test=None, **how) -> Finding:
    def difference(curves):
        return [exceeds("a over b", curves["a"] - curves["b"], threshold, "units")]

    return Finding(
        id="test:1", claim="", source="", published="", statistic="", reads=reads, test=test or difference,
        controls=controls, learned=(), **how,
    )  # fmt: skip


def judged(finding: Finding, **seeds_of: list) -> pd.Series:
    numbers = [rows_of(Spec(name.replace("_", "-")), seeds) for name, seeds in seeds_of.items()]
    return evaluate({"numbers": pd.concat(numbers)}, [finding]).iloc[0]


SEEDS = np.array([0.0, 0.15, 0.3])


@pytest.mark.parametrize(
    ("gap", "spread", "threshold", "wanted"),
    [
        (0.5, 1.0, 0.0, "holds"),
        (0.5, 3.0, 0.0, "undetermined"),  # means of three seeds differ by .52
        (0.5, 1.0, 0.1, "holds"),  # they differ by .17, more than the threshold and less than the claim
        (0.5, 3.0, 0.1, "undetermined"),
        (-0.5, 1.0, 0.0, "fails"),
    ],
)
def test_seeds_of_one_objective_stand_in_for_two_objectives(gap, spread, threshold, wanted) -> None:
    """The gap is the same in every seed, so that the interval alone would always say that the claim holds."""
    of_b = spread * SEEDS
    row = judged(claim((seeds_alone(READS, "a", "b"),), threshold), masked_lm=of_b + gap, causal_lm=of_b)
    assert row["verdict"] == wanted, row["note"]
    by_hand = [(one - other) / np.sqrt(3) for one, other in permutations(of_b, 2)] * 2
    assert row["control"] == pytest.approx(max(by_hand))  # of twelve more than 5 % is one
    assert ("The control shows it too" in row["reason"]) == (wanted == "undetermined")


@pytest.mark.parametrize(("number", "wanted"), [(19, "undetermined"), (20, "holds"), (40, "holds")])
def test_of_many_seeds_one_pair_in_twenty_may_be_as_far_apart(number, wanted) -> None:
    """Of 19 and 20 all pairs are tried, of 40 some."""
    seeds = np.r_[np.zeros(number - 1), 1.0]
    row = judged(claim((seeds_alone(READS, "a", "b"),)), masked_lm=seeds + 0.1, causal_lm=seeds)
    beyond = np.mean([(one - other) / np.sqrt(number) >= 0.1 for one, other in permutations(seeds, 2)])
    assert beyond == pytest.approx(1 / number)
    assert row["verdict"] == wanted


def test_each_objective_weighs_the_same() -> None:
    """Pairs of different seeds: three within an objective, six between two. One within is far off the others."""
    reads = {"own": Table("pairs", A, A, "unordered"), "cross": Table("pairs", A, B, "ordered")}
    found = {
        "own": Samples.of_units({(0, 1): np.full((3, 1), 9.0), (0, 2): np.zeros((3, 1)), (1, 2): np.zeros((3, 1))}),
        "cross": Samples.of_units({pair: np.zeros((3, 1)) for pair in permutations(range(3), 2)}),
    }
    control = seeds_alone(dict.fromkeys(reads, READS["a"]), "own", "cross")
    assert control.replicas is not None
    draws = list(control.replicas(found))
    far = sum(weight for draw, weight in draws if draw["own"][0, 0] - draw["cross"][0, 0] > 1)
    assert sum(weight for _, weight in draws) == pytest.approx(1)
    assert far == pytest.approx(0.5 * 2 / 6)  # of its six orders two begin with it; with 30 beside, .06


def test_each_side_is_one_training_in_everything_that_is_measured() -> None:
    found = {
        name: Samples.of_units({(seed,): np.tile([[10.0 * place + seed]], (3, 1)) for seed in range(3)})
        for place, name in enumerate(["new spans", "new words", "old spans", "old words"])
    }
    sides = [{f"{which} {what}": what for what in ("spans", "words")} for which in ("new", "old")]
    control = seeds_alone(dict.fromkeys(found, READS["a"]), *sides)
    assert control.replicas is not None
    seen = sorted(tuple(float(rows[0, 0]) for rows in draw.values()) for draw, _ in control.replicas(found))
    wanted = []
    for source in (0, 2):  # the places of the new, of the old
        for pair in permutations(range(3), 2):
            one, other = (1 + (seed - 1) / np.sqrt(3) for seed in pair)  # as far from the mean as means of three
            spans, words = 10.0 * source, 10.0 * (source + 1)
            wanted.append((spans + one, words + one, spans + other, words + other))
    assert np.array(seen) == pytest.approx(np.array(sorted(wanted)))


def test_readings_of_one_side_each_stand_in_for_all() -> None:
    found = {
        name: Samples.of_units({(s,): np.full((3, 1), 10.0 * n + s) for s in range(2)}) for n, name in enumerate("abc")
    }
    control = seeds_alone(dict.fromkeys("abc", READS["a"]), ("a", "b"), "c")
    assert control.replicas is not None
    seen = sorted(tuple(float(draw[name][0, 0]) for name in "abc") for draw, _ in control.replicas(found))
    low, high = (0.5 + side * 0.5 / np.sqrt(2) for side in (-1, 1))
    wanted = [(s + i, s + i, s + j) for s in (0.0, 10.0, 20.0) for i, j in ((low, high), (high, low))]
    assert np.array(seen) == pytest.approx(np.array(sorted(wanted)))
    with pytest.raises(ValueError, match=r"sides must name readings \(a, b\)\. Got c"):
        seeds_alone(READS, ("a", "b"), "c")


def test_too_few_seeds_are_told() -> None:
    reads = READS | {"c": read(C)}
    control = seeds_alone(reads, "a", "b", "c")
    row = judged(
        claim((control,), reads=reads, minimum_seeds=1), masked_lm=[1, 1], causal_lm=[0, 0], translation=[0, 0]
    )
    assert row["verdict"] == "not testable here"
    assert "it needs 3 training runs of one objective" in row["note"]


def highest_last(curves):
    curve = curves["a"]
    return [exceeds("last over the others", curve[:, -1:] - curve[:, :-1].max(axis=1, keepdims=True), 0.0, "units")]


PROFILE = [0.0, 0.1, 0.2, 0.3, 1.0]


@pytest.mark.parametrize(("seeds", "wanted"), [([PROFILE] * 3, False), ([[0.0, 0.0, 0.0, 1.0, 1.1]] * 3, True)])
def test_layers_in_any_order_are_as_high_where_two_are(seeds, wanted) -> None:
    """One and the same layer far above the others in three trainings is no accident; of two high ones, one can be."""
    reads = {"a": Table("numbers", A).by("layer")}
    row = judged(claim((layers_in_any_order(reads),), reads=reads, test=highest_last), masked_lm=seeds)
    claimed = np.mean(seeds, axis=0)
    effect = claimed[-1] - claimed[:-1].max()
    draws, every = np.random.default_rng(1), []
    for _ in range(2000):
        mean = np.mean([np.asarray(one)[draws.permutation(5)] for one in seeds], axis=0)
        every.append(mean[-1] - mean[:-1].max())
    assert (np.mean(np.array(every) >= effect - 1e-12) > 0.05) == wanted
    assert row["verdict"] == ("undetermined" if wanted else "holds"), row["note"]
    assert row["control"] == pytest.approx(np.quantile(every, 0.95), abs=0.1)


def test_few_layers_in_few_orders_measure_nothing() -> None:
    """Four layers of three trainings have one order in one of 16 draws."""
    reads = {"a": Table("numbers", A).by("layer")}
    row = judged(claim((layers_in_any_order(reads),), reads=reads, test=highest_last), masked_lm=[[0, 0, 0, 1.0]] * 3)
    assert row["verdict"] == "not testable here"
    assert row["reason"].startswith("No control was measured. Too few layers and training runs (4 and 3)")


def test_a_condition_on_any_column_ignores_those_that_are_unknown() -> None:
    def any_of(curves):
        values = np.concatenate([curves["a"] - curves["b"], np.nan * curves["a"]], axis=1)
        return [exceeds("any", values, 0.0, "units", ["known", "unknown"], over="any")]

    of_b = 3 * SEEDS
    row = judged(claim((seeds_alone(READS, "a", "b"),), test=any_of), masked_lm=of_b + 0.5, causal_lm=of_b)
    assert row["control"] == pytest.approx(0.9 / np.sqrt(3))


def test_seeds_that_agree_about_few_things_need_more_of_them() -> None:
    """Wilson's interval of 3 of 3 is .44 to 1, of 4 of 4 .51 to 1."""

    def share(curves):
        return [exceeds("share", curves["a"], 0.5, "share of seeds", of=1)]

    row = judged(claim((), test=share, uncontrolled="none"), masked_lm=[1, 1, 1], causal_lm=[0, 0, 0])
    assert (row["verdict"], row["seeds_needed"]) == ("undetermined", 4)
    assert "Too few seeds: to hold it needs at least 4, and there are 3." in row["reason"]
    assert "Too few seeds: to fail it needs at least 4, and there are 3." in row["reason"]
    row = judged(claim((), test=share, uncontrolled="none"), masked_lm=[1] * 4, causal_lm=[0] * 4)
    assert (row["verdict"], row["seeds_needed"]) == ("holds", 0)


def test_a_claim_that_no_control_could_show_says_so() -> None:
    assert judged(claim(()), masked_lm=[1, 1, 1], causal_lm=[0, 0, 0])["reason"] == "No control was measured."
    row = judged(claim((), uncontrolled="chance is the limit"), masked_lm=[1, 1, 1], causal_lm=[0, 0, 0])
    assert row["verdict"] == "holds"
    assert row["reason"].endswith("No control could show the claim: chance is the limit.")
    assert (row["control_name"], np.isnan(row["control"])) == ("", True)


@pytest.mark.parametrize(("halves", "wanted"), [(0.9, "holds"), (0.5, "not testable here")])
def test_numbers_must_agree_with_themselves(halves, wanted) -> None:
    reliable = Agreement(reads={"translation": read(C)}, least=0.7, of="sums")
    finding = claim((), uncontrolled="none", reliable=reliable)
    row = judged(finding, masked_lm=[1, 1, 1], causal_lm=[0, 0, 0], translation=[0.9, halves, 0.9])
    assert row["verdict"] == wanted
    if wanted != "holds":
        assert (
            "In a translation, sums from two halves of the sentences correlate at only 0.5 (needed: 0.7)"
            in row["reason"]
        )
        unknown = judged(finding, masked_lm=[1, 1, 1], causal_lm=[0, 0, 0])
        assert "How far two halves of the sentences agree is not known" in unknown["reason"]
    assert "numbers" in finding.tables
