"""What a model answers: against loops over single questions, and readers of which every answer is known."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from evidence.readers import Speaker, copier, memoriser
from retrieval.tiny_arms import tiny_arm, tiny_library, tiny_reader, tiny_world

from infoflow.evidence import (
    OWN,
    answer_log_probabilities,
    elicitation_entities,
    elicited,
    fact_inputs,
    knowledge,
    own_log_probabilities,
    question_candidates,
    sampled_facts,
)
from infoflow.foundation import UserError
from infoflow.objectives import Example, Noise
from infoflow.retrieval import NULL


def speaker(rule):
    world, tokenizer, _ = tiny_world()
    return Speaker(world, tokenizer, rule).eval()


def value(table, metric, facts="trained", weight=-1, document="gold", column="value"):
    chosen = table[
        (table.metric == metric) & (table.facts == facts) & (table.weight == weight) & (table.document == document)
    ]
    assert len(chosen) == 1, f"{len(chosen)} rows of {metric}, {facts}, {weight}, {document}"
    return chosen[column].item()


def slow_answers(reader, fact, document, edited=False):
    """Log-probabilities of the objects, question by question and object by object, without padding."""
    world, tokenizer, _ = tiny_world()
    number = tokenizer.get_vocab()
    inputs = fact_inputs(world, tokenizer, [fact], document, edited=edited)
    for row in range(len(inputs)):
        real = inputs.parts[row] != 0
        ids, segments = (torch.tensor(one[row][real])[None] for one in (inputs.input_ids, inputs.token_type_ids))
        with torch.no_grad():
            logs = reader(input_ids=ids, token_type_ids=segments).logits[0].double().log_softmax(-1).numpy()
        masks = [place for place, id in enumerate(ids[0].tolist()) if id == tokenizer.mask_token_id]
        scores = [
            sum(logs[place, number[word]] for place, word in zip(masks, words, strict=True))
            for words in (answer.split() for answer in world.answers(fact.relation))
        ]
        yield [one - math.log(sum(map(math.exp, scores))) for one in scores]


@pytest.mark.parametrize("document", ["none", "gold", "random", "conflict"])
def test_every_number_equals_a_loop_over_questions(document):
    world, tokenizer, _ = tiny_world()
    reader = tiny_reader().eval()
    with torch.no_grad():  # answers that differ
        for parameter in reader.parameters():
            parameter.mul_(4)
    table = knowledge(reader, world, tokenizer, documents=(document,))
    for kind, weight in (("trained", 1), ("changed", -1), ("held out", -1)):
        facts = [fact for fact in world.of_kind(kind) if weight in (-1, fact.weight)]
        right, bits, nats, guess, new = [], [], [], [], []
        for fact in facts:
            for logs in slow_answers(reader, fact, document):
                right.append(logs.index(max(logs)) == fact.object)
                new.append(logs.index(max(logs)) == fact.edited)
                bits.append(math.log2(len(logs)) + logs[fact.object] / math.log(2))
                nats.append(-logs[fact.object])
                guess.append(1 / len(logs))
        for metric, wanted in (("p1", right), ("bits", bits), ("nats", nats)):
            assert value(table, metric, kind, weight, document) == pytest.approx(np.mean(wanted), abs=1e-5)
        assert value(table, "p1", kind, weight, document, "baseline") == pytest.approx(np.mean(guess))
        assert value(table, "nats", kind, weight, document, "baseline") == pytest.approx(-np.mean(np.log(guess)))
        assert value(table, "p1", kind, weight, document, "count") == len(right)
        if kind == "changed":
            assert value(table, "p1_new", kind, weight, document) == pytest.approx(np.mean(new))
            assert value(table, "p1_old", kind, weight, document) == pytest.approx(np.mean(right))


def test_size_of_batches_and_padding_change_nothing():
    world, tokenizer, _ = tiny_world()
    reader, facts = tiny_reader().eval(), world.of_kind("trained")
    inputs = fact_inputs(world, tokenizer, facts, "gold")
    together, alone = (answer_log_probabilities(reader, inputs, batch=size) for size in (len(inputs), 1))
    np.testing.assert_allclose(together, alone, atol=1e-6)
    halves = [fact_inputs(world, tokenizer, part, "gold") for part in (facts[::2], facts[1::2])]
    for part, half in enumerate(halves):
        rows = [row for row, fact in enumerate(inputs.facts) if fact in half.facts]
        np.testing.assert_allclose(together[rows], answer_log_probabilities(reader, half), atol=1e-6), part


def test_an_untrained_reader_knows_nothing_with_any_document():
    world, tokenizer, _ = tiny_world()
    table = pd.DataFrame(knowledge(tiny_reader().eval(), world, tokenizer))
    assert (table[table.metric == "bits"].value.abs() < 0.25).all()
    p1 = table[(table.metric == "p1") & (table.weight == -1)]
    assert ((p1.low <= p1.baseline) & (p1.baseline <= p1.high)).mean() > 0.9
    assert {*p1.document} == {"none", "gold", "random", "conflict"}
    assert {*p1[p1.document == "gold"].facts} == {"trained", "changed", "held out"}  # of the others there is none
    assert {*p1[p1.document == "none"].facts} == {"trained", "changed", "held out", "withheld", "later"}


def test_one_that_copies_is_right_with_gold_and_wrong_with_a_contradiction():
    world, tokenizer, _ = tiny_world()
    table = knowledge(speaker(copier), world, tokenizer)
    for kind in ("trained", "changed", "held out"):
        assert value(table, "p1", kind) == 1
        assert value(table, "bits", kind) > 1.5
        assert value(table, "p1", kind, document="conflict") == 0
    first = np.mean([fact.object == 0 for fact in world.of_kind("trained")])
    assert value(table, "p1", document="none") == value(table, "p1", document="random") == pytest.approx(first)


def test_swapping_the_index_swaps_the_answers_of_one_that_copies_and_of_no_other():
    world, tokenizer, _ = tiny_world()
    now, then = (knowledge(speaker(copier), world, tokenizer, edited=one) for one in (False, True))
    assert (value(now, "p1_old", "changed"), value(now, "p1_new", "changed")) == (1, 0)
    assert (value(then, "p1_old", "changed"), value(then, "p1_new", "changed")) == (0, 1)
    assert value(then, "p1_new", "later") == 1
    assert {*then["index"]} == {"edited"}
    assert {*then.facts} == {"changed", "later"}
    kept = knowledge(speaker(memoriser), world, tokenizer, edited=True)
    assert (value(kept, "p1_old", "changed"), value(kept, "p1_new", "changed")) == (1, 0)


@pytest.mark.parametrize("name", ["closed-book", "read-gold", "retrieve-bm25", "retrieve-frozen", "retrieve-learned"])
@pytest.mark.parametrize("level", ["sequence", "token"])
def test_own_answers_are_those_of_the_loss_that_trained_the_model(name, level):
    """−log p(y|x) by the arm's objective with an object as the label; what they sum to drops out of differences."""
    world, tokenizer, vocabulary = tiny_world()
    objective, model = tiny_arm(name, level=level)
    model, objective = model.double().eval(), objective.for_evaluation()
    own = model.passage_library = model.passage_library or tiny_library()
    dates = [fact for fact in world.of_kind("trained") if fact.relation in world.config.date_relations]
    facts = [world.of_kind("trained")[0], dates[0], world.of_kind("withheld")[0]]
    found = question_candidates(model, world, tokenizer, facts, k=objective.k)
    fast = own_log_probabilities(model, world, tokenizer, facts, found, level=level)
    assert model.passage_library is own
    for row, question in enumerate(world.questions(facts)):
        fact, logs = world.facts[question.fact], []
        for answer in world.answers(fact.relation)[:3]:
            words = iter(answer.split())
            spelt = [
                next(words) if role == "object" else word
                for word, role in zip(question.words, question.roles, strict=True)
            ]
            places = [place for place, role in enumerate(question.roles, start=1) if role == "object"]
            text = np.array([vocabulary.start, *tokenizer.convert_tokens_to_ids(spelt), vocabulary.end])
            labels = {"spans": np.array([[places[0], places[-1] + 1]]), "excluded": np.empty(0, dtype=np.int64)}
            example = Example(texts=(text,), labels={**labels, "gold": np.array(world.gold(fact))})
            corrupted = objective.corrupt(example, np.random.default_rng(0), vocabulary)
            batch = objective.collate([corrupted], vocabulary, None, Noise((("test",),)))
            with torch.no_grad():
                logs.append(-float(objective.loss(model, batch, batch.noise)[name].total))
        np.testing.assert_allclose(fast[row, :3] - fast[row, 0], np.array(logs) - logs[0], atol=1e-6)
        assert np.exp(fast[row]).sum() == pytest.approx(1)
        assert np.isneginf(fast[row, world.config.choices(fact.relation) :]).all()


def test_candidates_are_what_is_found_and_the_best_is_the_likeliest():
    world, tokenizer, _ = tiny_world()
    facts = world.of_kind("trained", "withheld")
    model = tiny_arm("read-gold")[1].eval()
    found = question_candidates(model, world, tokenizer, facts)
    gold = [world.gold(world.facts[one.fact]) for one in world.questions(facts)]
    assert found.best().tolist() == gold
    assert (found.there[:, 0] == (np.array(gold) != NULL)).all()
    np.testing.assert_allclose(np.exp(found.log_prior).sum(axis=1), 1)
    learned = tiny_arm("retrieve-learned")[1].eval()
    searched = question_candidates(learned, world, tokenizer, facts, k=3)
    assert (np.diff(searched.log_prior[:, :3], axis=1) <= 1e-9).all()
    assert searched.best().tolist() == searched.ids[:, 0].tolist()
    random = question_candidates(tiny_arm("read-random")[1].eval(), world, tokenizer, facts)
    assert (random.best() != np.array(gold)).all()
    assert (random.best() == question_candidates(tiny_arm("read-random")[1], world, tokenizer, facts).best()).all()
    table = knowledge(model, world, tokenizer, documents=("gold", "retrieved", OWN), facts=world.of_kind("trained"))
    assert value(table, "bits") == pytest.approx(value(table, "bits", document="retrieved"))
    read = value(table, "bits", document=OWN)
    assert read != pytest.approx(value(table, "bits"), abs=1e-9)


def test_a_model_without_passages_says_so():
    world, tokenizer, _ = tiny_world()
    with pytest.raises(UserError, match="use a RetrievalModel"):
        knowledge(tiny_reader().eval(), world, tokenizer, documents=("own",))
    with pytest.raises(UserError, match="documents must be among"):
        knowledge(tiny_arm("closed-book")[1].eval(), world, tokenizer, documents=("retrieved",))
    with pytest.raises(UserError, match="most must be at least 1"):
        knowledge(tiny_reader().eval(), world, tokenizer, most=0)
    closed = knowledge(tiny_arm("closed-book")[1].eval(), world, tokenizer, documents=("none", OWN))
    assert value(closed, "nats", document=OWN) == pytest.approx(value(closed, "nats", document="none"))


def test_samples_are_even_and_grow_without_losing_a_fact():
    world, _, _ = tiny_world()
    few, more = sampled_facts(world, 2), sampled_facts(world, 5)
    assert {fact.number for fact in few} < {fact.number for fact in more}
    counts = pd.Series([(fact.kind, fact.weight) for fact in few]).value_counts()
    assert (counts <= 2).all()
    assert len(sampled_facts(world, 1000)) == len(world.facts)
    assert more == sorted(more, key=lambda fact: fact.number)


def test_eliciting_teaches_a_quarter_and_asks_for_the_others():
    world, tokenizer, _ = tiny_world()
    entities = elicitation_entities(world)
    known = {fact.entity for fact in world.of_kind("trained")}
    assert len(entities) == len(known) // 4
    facts = [fact for fact in world.facts if fact.trained and fact.entity in entities]
    reader = tiny_reader().eval()
    before = {name: tensor.clone() for name, tensor in reader.state_dict().items()}
    shown = elicited(reader, world, tokenizer, updates=12, rate=3e-3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in reader.state_dict().items())
    again = elicited(reader, world, tokenizer, updates=12, rate=3e-3)
    assert all(torch.equal(a, b) for a, b in zip(shown.parameters(), again.parameters(), strict=True))
    assert not shown.training
    first, second = (knowledge(one, world, tokenizer, facts=facts, documents=("none",)) for one in (reader, shown))
    assert value(second, "nats", document="none") < value(first, "nats", document="none")
    table = knowledge(shown, world, tokenizer, reading="elicited")
    assert {*table.reading} == {"elicited"}
    assert {*table.document} == {"none"}
    assert value(table, "p1", document="none", column="count") == 2 * len(
        [fact for fact in world.of_kind("trained") if fact.entity not in entities]
    )
