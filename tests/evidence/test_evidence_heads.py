"""Heads that read evidence: where they look, what is lost without them, and how their attention ranks passages.

Against loops over rows, heads and tokens without padding, and against `ablate` with one set of heads at a time.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from evidence.sharp_reader import facts_of_kind, inputs_of, sharp_reader
from retrieval.tiny_arms import tiny_arm, tiny_reader, tiny_world
from scipy.stats import spearmanr

from infoflow.evidence import (
    TokenPart,
    answer_log_probabilities,
    attention_ranking,
    attention_shares,
    evidence_ablation,
    evidence_heads,
    fact_blocks,
    fact_inputs,
)
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.heads import ablate, all_heads
from infoflow.models import load_model, tap
from infoflow.subjects.retrieval.measures._attention_ranking import candidate_passages, prior_scores
from infoflow.subjects.retrieval.measures._evidence_heads import (
    ablated_answers,
    copy_scores,
    head_readings,
    heads_by_copying,
    random_heads,
)


def readings_by_hand(reader, inputs, row):
    """Each metric of every (layer, head) of one question, alone and without padding."""
    real = inputs.parts[row] != TokenPart.PAD
    ids, segments = (torch.tensor(one[row][real])[None] for one in (inputs.input_ids, inputs.token_type_ids))
    parts, length = inputs.parts[row][real], int(real.sum())
    reader.set_attn_implementation("eager")
    with torch.no_grad():
        output = reader(input_ids=ids, token_type_ids=segments, output_attentions=True)
    reader.set_attn_implementation("sdpa")
    masks = [place for place in inputs.masks[row] if place >= 0]
    logs = output.logits[0].double().log_softmax(dim=-1)
    scores = []
    for choice in inputs.candidates[row]:
        spelt = [token for token in choice if token >= 0]
        scores.append(sum(float(logs[m, t]) for m, t in zip(masks, spelt, strict=True)) if spelt else -np.inf)
    said = inputs.others[row] if inputs.document == "conflict" else inputs.answers[row]
    right = int(np.argmax(scores)) == said
    found = {}
    for layer, weights in enumerate(output.attentions):
        for head in range(weights.shape[1]):
            sums, pointed = {}, 0.0
            for mask in masks:
                line = weights[0, head, mask].tolist()
                groups = {"evidence": [], "question": [], "special": [], "itself": [mask], "object": []}
                for place, part in enumerate(parts):
                    if part in (
                        TokenPart.EVIDENCE,
                        TokenPart.EVIDENCE_OBJECT,
                        TokenPart.EVIDENCE_RELATION,
                        TokenPart.EVIDENCE_SUBJECT,
                    ):
                        groups["evidence"].append(place)
                    if part == TokenPart.SPECIAL:
                        groups["special"].append(place)
                    if (
                        part in (TokenPart.SUBJECT, TokenPart.RELATION, TokenPart.QUESTION, TokenPart.MASK)
                        and place != mask
                    ):
                        groups["question"].append(place)
                    if part == TokenPart.EVIDENCE_OBJECT:
                        groups["object"].append(place)
                for name, places in groups.items():
                    share = sum(line[place] for place in places)
                    sums[name] = sums.get(name, 0) + share / len(masks)
                    relative = share / (len(places) / length) if places else np.nan
                    sums[f"{name}_relative"] = sums.get(f"{name}_relative", 0) + relative / len(masks)
                pointed += (line.index(max(line)) in groups["object"]) / len(masks)
            found[layer, head] = {**sums, "copy": pointed * right}
    return found


def test_shares_of_the_specification():
    weights = np.array([[0.1, 0.2, 0.05, 0.4, 0.2, 0.05], [0.3, 0.1, 0.1, 0.1, 0.1, 0.3]])
    chosen = np.zeros((1, 6), dtype=bool)
    chosen[0, 3:5] = True
    shares = attention_shares(weights, chosen)
    assert np.allclose(shares.share, [0.6, 0.2])
    assert np.allclose(shares.relative, [1.8, 0.6])
    padded = np.pad(weights, ((0, 0), (0, 2)))
    real = np.arange(8) < 6
    again = attention_shares(padded, np.pad(chosen, ((0, 0), (0, 2))), real)
    assert np.allclose(again.relative, shares.relative)
    none = attention_shares(weights, np.zeros((1, 6), dtype=bool))
    assert (none.share == 0).all()
    assert np.isnan(none.relative).all()


@pytest.mark.parametrize("document", ["gold", "conflict"])
def test_readings_equal_a_loop_over_heads_and_tokens(document):
    reader, inputs = sharp_reader(), inputs_of(document)
    readings = head_readings(load_model(reader), inputs, batch=5)
    for row in range(0, len(inputs), 3):
        for (layer, head), expected in readings_by_hand(reader, inputs, row).items():
            found = {name: layers[layer][row, head] for name, layers in readings.items()}
            assert found == pytest.approx(expected, abs=1e-5)
    assert sum(layer.sum() for layer in readings["evidence"]) > 0
    for layer in range(2):  # whatever is attended to lies in one of four groups
        total = sum(readings[name][layer] for name in ("evidence", "question", "special", "itself"))
        assert np.allclose(total, 1)


def test_copies_are_found_where_a_head_looks_at_the_object():
    """Attention is put in: every head of layer 1 looks at the object. What counts is then whether answers are right."""
    reader, inputs = sharp_reader(), inputs_of()
    model = load_model(reader)
    objects = torch.from_numpy(inputs.parts == TokenPart.EVIDENCE_OBJECT)

    def pointing(call):
        if call.layer == 1:
            aimed = (objects / objects.sum(dim=1, keepdim=True))[:, None, None].expand_as(call.weights)
            return call.edited(weights=aimed.to(call.weights))
        return None

    with tap(model, on_attention=pointing):
        readings = head_readings(model, inputs, batch=len(inputs))
        scores = copy_scores(model, inputs, batch=len(inputs))
    assert np.allclose(readings["object"][1], 1)
    right = readings["copy"][1][:, 0]
    assert set(right) <= {0.0, 1.0}
    assert (readings["copy"][1] == right[:, None]).all()
    assert np.allclose(scores[1], right.mean(), atol=1e-4)
    assert scores[1].min() > scores[0].max()


def test_the_table_holds_means_with_a_random_document_as_baseline():
    world, tokenizer, _ = tiny_world()
    reader = sharp_reader()
    table = evidence_heads(reader, world, tokenizer, kinds=("trained",), documents=("gold", "conflict"), facts=7)
    again = evidence_heads(reader, world, tokenizer, kinds=("trained",), facts=7, batch=3)
    gold = pd.DataFrame(table[table["document"] == "gold"]).reset_index(drop=True)
    assert np.allclose(gold["value"], again["value"], equal_nan=True, atol=1e-6)
    every = pd.DataFrame(gold[gold["weight"] == -1])
    assert set(every["count"]) == {14}
    assert len(every) == 2 * 2 * 11
    facts = {fact.number: fact for fact in world.of_kind("trained")}
    chosen = evidence_facts(world)
    assert set(chosen) <= set(facts)
    inputs = fact_inputs(world, tokenizer, [facts[one] for one in chosen], "gold")
    readings = head_readings(load_model(reader), inputs)
    row = every[(every["layer"] == 1) & (every["head"] == 0) & (every["metric"] == "evidence")].iloc[0]
    assert row["value"] == pytest.approx(readings["evidence"][1][:, 0].mean())
    random = fact_inputs(world, tokenizer, [facts[one] for one in chosen], "random")
    assert row["baseline"] == pytest.approx(head_readings(load_model(reader), random)["evidence"][1][:, 0].mean())
    assert row["low"] < row["value"] < row["high"]


@pytest.mark.parametrize("document", ["gold", "retrieved"])
def test_each_exposure_has_its_own_means(document):
    """Against single questions: of what is found, with the passage that BM25 puts first."""
    world, tokenizer, _ = tiny_world()
    _, model = tiny_arm("retrieve-bm25")
    model.reader = sharp_reader()
    table = evidence_heads(model, world, tokenizer, kinds=("trained",), documents=(document,), facts=9, batch=5)
    table = table[table["weight"] > 0]
    assert set(table["metric"]) == {"evidence", "object", "copy"}
    chosen = facts_of_kind(world, "trained", 9)
    first = None
    if document == "retrieved":
        words = model.passage_library.vocabulary.is_special
        asked = fact_inputs(world, tokenizer, chosen, "none").input_ids
        scores = [model.passage_library.lexical.scores(row[~words[row]].tolist()) for row in asked]
        first = [int(np.argmax(one)) for one in scores]
    inputs = fact_inputs(world, tokenizer, chosen, document, passages=first)
    random = fact_inputs(world, tokenizer, chosen, "random")
    for weight in (1, 2):
        rows = [row for row, fact in enumerate(inputs.facts) if fact.weight == weight]
        assert 0 < len(rows) < len(inputs)
        for metric, read in (("evidence", inputs), ("copy", inputs), ("evidence", random)):
            if document == "retrieved" and metric == "copy":
                continue  # the loop knows no object in a passage that does not answer
            by_hand = [readings_by_hand(model.reader, read, row)[1, 0][metric] for row in rows]
            here = table[(table["weight"] == weight) & (table["layer"] == 1) & (table["head"] == 0)]
            row = here[here["metric"] == metric].iloc[0]
            assert row["count"] == len(rows)
            column = "baseline" if read is random else "value"
            assert row[column] == pytest.approx(np.mean(by_hand), abs=1e-5)


def test_facts_without_a_document_have_no_row():
    world, tokenizer, _ = tiny_world()
    table = evidence_heads(sharp_reader(), world, tokenizer, kinds=("withheld",), documents=("gold", "random"), facts=3)
    assert set(table["document"]) == {"random"}
    assert np.allclose(table["value"], table["baseline"], equal_nan=True), "the control is the same document"
    with pytest.raises(UserError, match="No fact of the kinds withheld has a document of the kinds gold"):
        evidence_heads(sharp_reader(), world, tokenizer, kinds=("withheld",))
    with pytest.raises(UserError, match="documents must be among"):
        evidence_heads(sharp_reader(), world, tokenizer, documents=("retrieved",))


def evidence_facts(world):

    return [fact.number for fact in facts_of_kind(world, "trained", 7)]


def test_all_rows_of_a_fact_lie_in_one_block():
    inputs = inputs_of()
    blocks = fact_blocks(inputs.facts)
    assert blocks.min() >= 0
    assert blocks.max() < NUM_BLOCKS
    by_fact = {}
    for fact, block in zip(inputs.facts, blocks, strict=True):
        assert by_fact.setdefault(fact.number, block) == block
    assert len(set(blocks)) > 5


def test_what_cannot_be_asked_is_said():
    world, tokenizer, _ = tiny_world()
    with pytest.raises(UserError, match="facts must be at least 1"):
        evidence_heads(tiny_reader(), world, tokenizer, facts=0)
    with pytest.raises(UserError, match="not a masked LM"):
        evidence_heads(tiny_reader().bert, world, tokenizer)


# -- answers without some heads --------------------------------------------------------------------------------------


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


# -- attention on passages, and their posterior ----------------------------------------------------------------------


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
