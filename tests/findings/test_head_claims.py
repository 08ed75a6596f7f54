"""Claims about heads on tables where they are true, false, shown by the control too, or not to be tested."""

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, evaluate

IDS = [f"heads:{name}" for name in ("V7", "V9", "C1", "C2", "C3", "C4", "C5")]
SEEDS = (1, 2, 3)
UP, DOWN = "dependent→head", "head→dependent"


def relations(convention, **values):
    """(key columns, value, baseline) of two heads in both directions."""
    for relation, (best, baseline) in values.items():
        for direction, worse in ((UP, 0.0), (DOWN, 0.1)):
            for head in (0, 1):
                keys = {"layer": 1, "head": head, "relation": relation, "direction": direction}
                yield keys | {"convention": convention}, best - worse - 0.2 * head, baseline


def surface(**values):
    for statistic, (numbers, baseline) in values.items():
        for (layer, head), value in np.ndenumerate(np.array(numbers)):
            yield {"layer": layer, "head": head, "statistic": statistic}, value, baseline


TRUE = {
    "head_rare_token": [
        ({"layer": layer, "head": head, "rarest": rarest}, value, 0.2)
        for layer, head, rarest, value in (
            (0, 0, 1, 0.66), (0, 0, 2, 0.83), (0, 1, 1, 0.2), (0, 1, 2, 0.3), (1, 0, 1, 0.1), (1, 0, 2, 0.9),
        )
    ],
    "head_relations": [
        *relations("voita", nsubj=(0.77, 0.45), obj=(0.84, 0.46), amod=(0.81, 0.80), advmod=(0.42, 0.33)),
        *relations("clark", det=(0.943, 0.517), obj=(0.868, 0.4), nsubj=(0.585, 0.455), amod=(0.756, 0.683)),
    ],
    "head_probe": [
        ({"probe": "attention"}, 0.61, 0.26),
        ({"probe": "attention+words"}, 0.77, 0.26),
        ({"probe": "distance+words"}, 0.58, 0.26),
    ],
    "head_coreference": [
        ({"layer": 4, "head": head, "mention": mention, "head_match": 0.52}, value, 0.27)
        for head, mention, value in ((0, "all", 0.65), (1, "all", 0.3), (1, "pronoun", 0.7))
    ],
    "head_surface": list(
        surface(
            previous=([[0.7, 0.1], [0.2, 0.2]], 0.05),
            next=([[0.1, 0.6], [0.2, 0.2]], 0.05),
            entropy=([[2.0, 4.0], [1.0, 1.5]], 4.85),
            sep=([[0.1, 0.2], [0.9, 0.7]], 0.02),
            sep_to_sep=([[0.1, 0.2], [0.95, 0.93]], 0.02),
        )
    ),
    "head_special_gradient": [
        ({"layer": layer, "head": head}, (0.02, 0.001)[layer], 0.01) for layer in (0, 1) for head in (0, 1)
    ],
    "head_layer_distance": [({"pairs": "within"}, 0.2, 0.29), ({"pairs": "difference"}, 0.1, 0.001)],
}  # fmt: skip
FLAT = 0.3  # of an untrained model, wherever it is no distance or entropy


def table(rows, seeds=SEEDS, untrained=None, noise=0.001):
    """A study's table; the untrained model has the rows of `untrained`, or flat ones."""
    built = []
    flat = [(keys, 0.5 if baseline > 1 else min(FLAT, baseline), baseline) for keys, _, baseline in rows]
    for objective in ("masked-lm", "translation"):
        for trained, own in ((True, rows), (False, untrained or flat)):
            for seed in seeds:
                rng = np.random.default_rng([seed, trained])
                model = {"model": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, "trained": trained}
                for keys, value, baseline in own:
                    row = model | {"stack": "encoder", "kind": "self"} | keys | {"value": value, "baseline": baseline}
                    replicates = value + noise * rng.standard_normal(30)
                    built.append(row | {"replicates": list(replicates), "count": 500})
    return pd.DataFrame(built)


def scores():
    rows = [
        {"objective": objective, "seed": seed, "trained": True, "split": "test", "metric": metric, "value": value}
        | {"low": value, "high": value, "baseline": baseline, "replicates": [value] * 5}
        for objective in ("masked-lm", "translation")
        for seed in SEEDS
        for metric, value, baseline in (("loss", 2.0, 6.0), ("bleu", 30.0, 1.5))
    ]
    return pd.DataFrame(rows)


def verdict(name, changes=None, **options):
    rows = TRUE | (changes or {})
    tables = {key: table(value, **options) for key, value in rows.items() if value is not None}
    return evaluate(tables | {"task_scores": scores()}, [FINDINGS[name]]).iloc[0]


@pytest.mark.parametrize("name", IDS)
def test_the_published_numbers_hold(name):
    row = verdict(name)
    assert row["verdict"] == "holds", row["reason"]
    assert row["control_name"] == "untrained model"
    assert row["seeds"] == 3


@pytest.mark.parametrize(
    ("name", "effect", "threshold"),
    [
        ("heads:V7", 0.83, 0.5),  # the weaker condition by its width: both are clear
        ("heads:V9", 0.01 + 0.09, None),
        ("heads:C1", 0.756 - 0.683, 0),
        ("heads:C3", 0.65 - 0.52, 0),
        ("heads:C4", 0.1, 1.0),
    ],
)
def test_effects_are_those_of_the_best_heads(name, effect, threshold):
    row = verdict(name)
    note = row["note"]
    shown = {"heads:V7": "0.83 (", "heads:V9": "0.05 (", "heads:C1": "0.073 (", "heads:C3": "0.13 ("}
    assert shown.get(name, "0.1 (") in note, note
    if threshold is not None:
        assert f"{threshold:.3g}" in note


def changed(name, edit):
    return {name: [edit(dict(keys), value, baseline) for keys, value, baseline in TRUE[name]]}


@pytest.mark.parametrize("name", IDS)
def test_an_untrained_model_that_shows_it_too_leaves_it_open(name):
    tables = {key: table(rows, untrained=rows) for key, rows in TRUE.items()}
    row = evaluate(tables | {"task_scores": scores()}, [FINDINGS[name]]).iloc[0]
    assert row["verdict"] == "undetermined", row["reason"]
    assert "The control shows it too" in row["reason"]


@pytest.mark.parametrize(
    ("name", "absent", "reason"),
    [
        ("heads:V7", "head_rare_token", "The table head_rare_token is absent"),
        ("heads:V9", "head_relations", "it needs a corpus with trees"),
        ("heads:C2", "head_probe", "it needs a corpus with trees"),
        ("heads:C3", "head_coreference", "a corpus with coreference annotation"),
        ("heads:C4", "head_special_gradient", "a tokenizer with a SEP token, and a plan that does not leave it out"),
    ],
)
def test_what_is_missing_is_named(name, absent, reason):
    row = verdict(name, {absent: None})
    assert row["verdict"] == "not testable here"
    assert reason in row["reason"]


def test_relations_of_either_scheme_are_read():
    clearnlp = changed("head_relations", lambda k, v, b: (k | {"relation": k["relation"].replace("obj", "dobj")}, v, b))
    assert verdict("heads:V9", clearnlp)["verdict"] == "holds"
    none = changed("head_relations", lambda k, v, b: (k | {"relation": k["relation"].replace("obj", "iobj")}, v, b))
    row = verdict("heads:V9", none)
    assert row["verdict"] == "not testable here"
    assert "no rows with relation obj or dobj" in row["reason"]


def test_one_seed_is_enough_for_what_concerns_a_model_by_itself():
    row = verdict("heads:V7", seeds=(1,))
    assert row["verdict"] == "holds"
    assert row["seeds"] == 1
    assert "One seed" in row["reason"]


def test_rare_tokens_need_one_head_for_both():
    """One head looks at the two rarest, another one beats its shuffled ranks."""
    rows = [
        ({"layer": 0, "head": head, "rarest": rarest}, value, 0.2)
        for head, rarest, value in ((0, 1, 0.15), (0, 2, 0.83), (1, 1, 0.45), (1, 2, 0.4))
    ]
    row = verdict("heads:V7", {"head_rare_token": rows})
    assert row["verdict"] == "fails", row["reason"]
