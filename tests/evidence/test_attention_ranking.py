"""Attention on passages and their posterior, against loops over questions, candidates and heads."""

import math

import numpy as np
import pytest
import torch
from evidence.sharp_reader import facts_of_kind, inputs_of, sharp_reader
from retrieval.tiny_arms import tiny_arm, tiny_world
from scipy.stats import spearmanr

from infoflow.evidence import attention_ranking, fact_inputs
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.subjects.retrieval.measures._attention_ranking import candidate_passages, prior_scores
from infoflow.subjects.retrieval.measures._evidence_heads import heads_by_copying


def test_candidates_are_the_gold_passage_those_near_it_and_others():
    world, _, _ = tiny_world()
    facts = world.of_kind("trained")
    ids = candidate_passages(world, facts, 4, seed=0)
    assert ids.shape == (len(facts), 4)
    for fact, row in zip(facts, ids, strict=True):
        assert len(set(row)) == 4
        assert world.gold(fact) in row
        assert set(world.distractors(fact)[:3]) <= set(row)
    places = [list(row).index(world.gold(fact)) for fact, row in zip(facts, ids, strict=True)]
    assert set(places) == {0, 1, 2, 3}
    with pytest.raises(UserError, match="candidates must lie between 3"):
        candidate_passages(world, facts, 2, seed=0)


@pytest.mark.parametrize("name", ["retrieve-bm25", "retrieve-frozen", "retrieve-learned"])
def test_the_prior_is_that_of_training(name):
    """The scores that the model itself gives to what it finds."""
    objective, model = tiny_arm(name)
    model.eval()
    asked = inputs_of("none")
    lengths = (asked.token_type_ids == 0).sum(axis=1) - (asked.parts == 0).sum(axis=1)
    for row in range(0, len(asked), 7):
        ids = torch.from_numpy(asked.input_ids[row : row + 1, : lengths[row]])
        nothing = np.array([-1])
        choice = model.choose(ids, None, objective.k, nothing, nothing, [[]], np.array([False]))
        with torch.no_grad():
            expected = model.logits(ids, None, choice)[0, :-1].double().numpy()
        found = prior_scores(model, asked.take(np.array([row])), choice.ids[:, :-1])
        assert np.allclose(found[0], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["read-gold", "retrieve-bm25"])
def test_the_table_equals_a_loop(name):
    world, tokenizer, _ = tiny_world()
    _, model = tiny_arm(name)
    model.reader = sharp_reader()
    if name == "retrieve-bm25":
        with torch.no_grad():
            model.scale.fill_(0.7)
    options = {"kinds": ("trained",), "ranked_by": ("held out",), "facts": 4}
    table = attention_ranking(model, world, tokenizer, batch=5, **options)
    facts = facts_of_kind(world, "trained", 4)
    reader, asked = model.reader, fact_inputs(world, tokenizer, facts, "none")
    ranking = fact_inputs(world, tokenizer, facts_of_kind(world, "held out", 4), "gold")
    ranked = heads_by_copying(load_model(reader), ranking)
    _, _, layer, head = ranked[0]  # a quarter of four heads
    reader.set_attn_implementation("eager")
    ids = np.repeat(candidate_passages(world, facts, 4, 0), 2, axis=0)
    prior = prior_scores(model, asked, ids)
    correlations, hits = [], []
    for question in range(len(asked)):
        looked, joint = [], []
        for candidate, passage in enumerate(ids[question]):
            passages = [-1] * len(asked)
            passages[question] = int(passage)
            inputs = fact_inputs(world, tokenizer, facts, "retrieved", passages=passages)
            real = inputs.parts[question] > 0
            tokens, segments = (
                torch.tensor(one[question][real])[None] for one in (inputs.input_ids, inputs.token_type_ids)
            )
            with torch.no_grad():
                output = reader(input_ids=tokens, token_type_ids=segments, output_attentions=True)
            masks = [place for place in inputs.masks[question] if place >= 0]
            words = inputs.parts[question][real] >= 6
            weights = output.attentions[layer][0, head].numpy()
            looked.append(np.mean([weights[mask][words].sum() for mask in masks]))
            answer = inputs.candidates[question, inputs.answers[question]]
            logs = output.logits[0].double().log_softmax(-1)
            likely = sum(float(logs[mask, token]) for mask, token in zip(masks, answer, strict=False))
            joint.append(math.exp(prior[question, candidate] + likely))
        correlations.append(spearmanr(looked, joint).statistic)
        hits.append(ids[question][int(np.argmax(looked))] == world.gold(asked.facts[question]))
    reader.set_attn_implementation("sdpa")
    weights = np.array([fact.weight for fact in asked.facts])
    for facts_of, weight in (("all", -1), ("trained", -1), *(("trained", one) for one in set(weights.tolist()))):
        own = weights == weight if weight > 0 else weights > 0
        group = table[(table["facts"] == facts_of) & (table["weight"] == weight)].set_index("metric")
        assert group.loc["spearman", "value"] == pytest.approx(np.mean(np.array(correlations)[own]))
        assert group.loc["hit", "value"] == pytest.approx(np.mean(np.array(hits)[own]))
        assert group["count"].eq(own.sum()).all()
    assert len(table) == 2 * (2 + len(set(weights.tolist())))
    assert np.isfinite(table["baseline"]).all()


def test_a_plain_reader_has_an_even_prior_and_training_mode_stays():
    world, tokenizer, _ = tiny_world()
    _, model = tiny_arm("read-gold")
    model.reader = sharp_reader()
    model.train()
    whole = attention_ranking(model, world, tokenizer, facts=2)
    assert model.null_logit.requires_grad
    plain = attention_ranking(sharp_reader(), world, tokenizer, facts=2)
    assert np.allclose(whole["value"], plain["value"])
    with pytest.raises(UserError, match="draws"):
        attention_ranking(sharp_reader(), world, tokenizer, draws=0)
