"""Answers without some heads, against `ablate` with one set of heads at a time."""

import numpy as np
import pandas as pd
import pytest
from evidence.sharp_reader import facts_of_kind, inputs_of, sharp_reader
from retrieval.tiny_arms import tiny_world

from infoflow.evidence import answer_log_probabilities, evidence_ablation, fact_inputs
from infoflow.foundation import UserError
from infoflow.heads import ablate, all_heads
from infoflow.models import load_model
from infoflow.subjects.retrieval.measures._evidence_heads import (
    ablated_answers,
    copy_scores,
    heads_by_copying,
    random_heads,
)


def test_answers_equal_those_of_one_set_at_a_time():
    reader, inputs = sharp_reader(), inputs_of(num=8)
    model = load_model(reader)
    heads = all_heads(model.anatomy)
    variants = [frozenset(one) for one in ([], heads[:1], heads[2:3], [heads[0], heads[3]], heads)]
    clean, found = ablated_answers(model, inputs, variants, batch=5)
    assert np.allclose(clean, answer_log_probabilities(reader, inputs), atol=1e-5)
    assert (found[0] == clean).all()
    for heads_of, logs in zip(variants, found, strict=True):
        with ablate(model, heads_of):
            assert np.allclose(logs, answer_log_probabilities(reader, inputs), atol=1e-5)
    assert not np.allclose(found[1], clean, atol=1e-3)


def test_heads_are_ranked_by_what_they_copy():
    model, inputs = load_model(sharp_reader()), inputs_of()
    scores = copy_scores(model, inputs)
    ranked = heads_by_copying(model, inputs)
    assert sorted(ranked) == all_heads(model.anatomy)
    values = [scores[layer][head] for _, _, layer, head in ranked]
    assert values == sorted(values, reverse=True)


def test_random_heads_are_distinct_and_others():
    heads = [("encoder", "self", 0, head) for head in range(6)]
    drawn = random_heads(heads, 3, 5, seed=1)
    assert all(len(one) == 3 and one <= set(heads) for one in drawn)
    assert len(set(drawn)) > 1
    assert drawn == random_heads(heads, 3, 5, seed=1)


def test_the_table_is_as_its_definition_says():
    world, tokenizer, _ = tiny_world()
    reader = sharp_reader()
    model = load_model(reader)
    table = evidence_ablation(reader, world, tokenizer, kinds=("trained",), facts=6, draws=2, batch=5)
    assert set(table["removed"]) == {0, 1, 2}
    chosen = facts_of_kind(world, "trained", 6)
    gold = inputs_of()
    gold = gold.take(np.array([row for row, fact in enumerate(gold.facts) if fact in chosen]))
    ranked = heads_by_copying(model, gold)
    for document in ("gold", "none"):
        inputs = inputs_of(document)
        inputs = inputs.take(np.array([row for row, fact in enumerate(inputs.facts) if fact in chosen]))
        for num in (0, 1, 2):
            with ablate(model, ranked[:num]):
                logs = answer_log_probabilities(reader, inputs)
            surprise = -logs[np.arange(len(inputs)), inputs.answers].mean()
            right = (logs.argmax(axis=1) == inputs.answers).mean()
            rows = pd.DataFrame(table[(table["document"] == document) & (table["removed"] == num)])
            rows = pd.DataFrame(rows[rows["weight"] == -1])
            found = rows.set_index("metric")["value"]
            assert found["p1"] == pytest.approx(right)
            assert found["nats"] == pytest.approx(surprise, abs=1e-5)
            assert rows["count"].eq(12).all()
    one = table[(table["removed"] == 1) & (table["document"] == "gold") & (table["metric"] == "nats")].iloc[0]
    costs = []
    for heads in random_heads(ranked[1:], 1, 2, seed=0):
        with ablate(model, heads):
            logs = answer_log_probabilities(reader, inputs_of(num=None))
        all_inputs = inputs_of()
        kept = np.array([fact in chosen for fact in all_inputs.facts])
        costs.append(-logs[np.arange(len(kept)), all_inputs.answers][kept].mean())
    assert one["baseline"] == pytest.approx(np.mean(costs), abs=1e-5)


def test_each_exposure_loses_what_its_own_questions_lose():
    """With a document that contradicts, without the heads that other facts rank."""
    world, tokenizer, _ = tiny_world()
    reader = sharp_reader()
    model = load_model(reader)
    options = {"ranked_by": ("held out",), "facts": 5, "draws": 2, "batch": 3}
    table = evidence_ablation(reader, world, tokenizer, kinds=("trained",), documents=("conflict",), **options)
    ranked = heads_by_copying(model, fact_inputs(world, tokenizer, facts_of_kind(world, "held out", 5), "gold"))
    inputs = fact_inputs(world, tokenizer, facts_of_kind(world, "trained", 5), "conflict")
    rows = np.arange(len(inputs))
    weights = np.array([fact.weight for fact in inputs.facts])
    assert set(weights) == {1, 2}
    for num in (1, 2):
        found = []
        for heads in (ranked[:num], *random_heads(ranked[num:], num, 2, seed=0)):
            with ablate(model, heads):
                logs = answer_log_probabilities(reader, inputs)
            found.append({"nats": -logs[rows, inputs.answers], "p1": logs.argmax(axis=1) == inputs.answers})
        for weight in {-1, *weights.tolist()}:
            own = weights == weight if weight > 0 else weights > 0
            for metric in ("nats", "p1"):
                here = table[(table["removed"] == num) & (table["weight"] == weight) & (table["metric"] == metric)]
                assert here["value"].item() == pytest.approx(found[0][metric][own].mean(), abs=1e-5)
                others = np.mean([one[metric][own].mean() for one in found[1:]])
                assert here["baseline"].item() == pytest.approx(others, abs=1e-5)
                assert here["count"].item() == own.sum()
    assert set(table["weight"]) == {-1, *weights.tolist()}


def test_a_baseline_needs_a_draw():
    world, tokenizer, _ = tiny_world()
    with pytest.raises(UserError, match="draws must be at least 1"):
        evidence_ablation(sharp_reader(), world, tokenizer, draws=0)
