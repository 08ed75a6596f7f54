"""Inputs are what the reader of a retrieval model sees, and every token is what it is said to be."""

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import tiny_arm, tiny_reader, tiny_world

from infoflow.evidence import DOCUMENTS, EVIDENCE_PARTS, TokenPart, answer_log_probabilities, fact_inputs
from infoflow.foundation import UserError
from infoflow.retrieval import NULL


def inputs_of(document, kinds=("trained", "held out"), **options):
    world, tokenizer, _ = tiny_world()
    return fact_inputs(world, tokenizer, world.of_kind(*kinds), document, **options)


@pytest.mark.parametrize("document", ["none", "gold"])
def test_the_reader_sees_the_same_in_training(document):
    world = tiny_world()[0]
    inputs = inputs_of(document)
    _, model = tiny_arm("read-gold")
    masked = [
        row[: int((segments == 0).sum() - (row == 0).sum())]
        for row, segments in zip(inputs.input_ids, inputs.token_type_ids, strict=True)
    ]
    ids = np.array([[world.gold(fact) if document == "gold" else NULL] for fact in inputs.facts])
    pairs = np.argwhere(np.ones_like(ids, dtype=bool))
    tokens, real, segments = model._pairs(masked, pairs, ids)
    assert np.array_equal(tokens, inputs.input_ids)
    assert np.array_equal(segments, inputs.token_type_ids)
    assert np.array_equal(real, inputs.attention_mask)


def test_parts_are_what_they_are_called():
    world, tokenizer, _ = tiny_world()
    inputs = inputs_of("gold")
    for row, fact in enumerate(inputs.facts):
        words = np.array(tokenizer.convert_ids_to_tokens(inputs.input_ids[row]))
        parts = inputs.parts[row]
        assert " ".join(words[parts == TokenPart.SUBJECT]) == " ".join(world.names[fact.entity])
        assert " ".join(words[parts == TokenPart.EVIDENCE_SUBJECT]) == " ".join(world.names[fact.entity])
        assert " ".join(words[parts == TokenPart.EVIDENCE_OBJECT]) == world.answer(fact)
        assert set(words[parts == TokenPart.MASK]) == {"[MASK]"}
        answer = inputs.candidates[row, inputs.answers[row]]
        assert " ".join(tokenizer.convert_ids_to_tokens(answer[answer >= 0])) == world.answer(fact)
        assert set(words[parts == TokenPart.PAD]) <= {"[PAD]"}
        assert words[parts == TokenPart.RELATION] != words[parts == TokenPart.EVIDENCE_RELATION]


def test_documents_differ_as_they_should():
    world, tokenizer, _ = tiny_world()
    gold, other = inputs_of("gold"), inputs_of("conflict")
    changed = gold.input_ids != other.input_ids
    assert (gold.parts[changed] == TokenPart.EVIDENCE_OBJECT).all()
    assert changed.any(axis=1).all()
    assert (other.others != other.answers).all()
    assert not np.isin(inputs_of("random").parts, [TokenPart.EVIDENCE_OBJECT, TokenPart.EVIDENCE_SUBJECT]).any()
    assert not np.isin(inputs_of("none").parts, EVIDENCE_PARTS).any()
    facts = world.of_kind("trained")
    found = [world.gold(world.facts[one.fact]) for one in world.questions(facts)]
    same = fact_inputs(world, tokenizer, facts, "retrieved", passages=found)
    assert np.array_equal(same.input_ids, inputs_of("gold", ("trained",)).input_ids)
    with pytest.raises(UserError, match="passages are needed"):
        inputs_of("retrieved")
    with pytest.raises(UserError, match="No fact has a document"):
        inputs_of("gold", ("withheld",))


@pytest.mark.parametrize("document", DOCUMENTS[:4])
def test_answers_equal_a_loop_over_rows_and_objects(document):
    reader, inputs = tiny_reader().eval(), inputs_of(document)
    fast = answer_log_probabilities(reader, inputs, batch=7)
    world, tokenizer, _ = tiny_world()
    for row in range(0, len(inputs), 5):
        real = inputs.attention_mask[row] == 1
        ids, segments = (torch.tensor(one[row][real])[None] for one in (inputs.input_ids, inputs.token_type_ids))
        with torch.no_grad():
            logs = reader(input_ids=ids, token_type_ids=segments).logits[0].double().log_softmax(-1)
        scores = []
        for words in world.answers(inputs.facts[row].relation):
            tokens = tokenizer.convert_tokens_to_ids(words.split())
            places = np.flatnonzero(inputs.parts[row] == TokenPart.MASK)
            scores.append(sum(float(logs[place, token]) for place, token in zip(places, tokens, strict=True)))
        slow = torch.tensor(scores).log_softmax(0).numpy()
        assert np.allclose(fast[row, : len(slow)], slow, atol=1e-5)
        assert np.isneginf(fast[row, len(slow) :]).all()
