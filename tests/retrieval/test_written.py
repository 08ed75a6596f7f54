"""Readers that write their answers: RAG, token by token, against the definition written out."""

import copy

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import (
    marginal_by_hand,
    summed_out,
    tiny_arm,
    tiny_config,
    tiny_data,
    tiny_library,
    tiny_reader,
    tiny_world,
    tiny_writer,
    with_passage,
)

from infoflow.evidence import decoded_answers, knowledge, own_log_probabilities, question_candidates
from infoflow.foundation import UserError
from infoflow.objectives import UNSUPERVISED
from infoflow.retrieval import sequence_log_likelihoods
from infoflow.subjects.retrieval.objectives import retrieval_model
from infoflow.training import evaluate, train

ROWS = np.arange(0, 60, 4)
NAMES = ("closed-book", "read-gold", "retrieve-bm25", "retrieve-learned")


def written(name, dtype=torch.float64, **options):
    objective, model = tiny_arm(name, writes=True, **options)
    if model.passage_library is None:
        model.passage_library = tiny_library()
    return objective, model.to(dtype).eval()


def batch_of(objective, rows=ROWS):
    return tiny_data().batch(objective, rows, ("test",), 0)


def spelt(reader, tokens, segments, answer):
    """log p of each token of an answer and of its end, the decoder run anew for every one of them."""
    _, _, vocabulary = tiny_world()
    states = reader.encoder(input_ids=tokens[None], token_type_ids=segments[None])
    found = []
    for place, token in enumerate([*answer, vocabulary.end]):
        before = torch.tensor([[vocabulary.start, *answer[:place]]])
        logits = reader(encoder_outputs=states, decoder_input_ids=before, use_cache=False).logits[0, -1]
        found.append(logits.log_softmax(dim=-1)[token])
    return torch.stack(found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", ["sequence", "token"])
def test_loss_and_every_gradient_are_those_of_the_definition(name, level):
    objective, model = written(name, level=level, null_share=0.3)
    batch = batch_of(objective, np.arange(0, 60, 7))
    assert batch["null_only"].any()
    assert len(set((batch.labels != UNSUPERVISED).sum(dim=1).tolist())) > 1  # answers of one token and of two
    term = objective.loss(model, batch, batch.noise)[name]
    assert term.count == batch.supervised_tokens
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(term.total, parameters, allow_unused=True)
    wanted = marginal_by_hand(objective, model, batch, spelt)
    torch.testing.assert_close(term.total, wanted, rtol=1e-6, atol=1e-6)
    others = torch.autograd.grad(wanted, parameters, allow_unused=True)
    for found, other in zip(gradients, others, strict=True):
        assert (found is None) == (other is None)
        if found is not None:
            torch.testing.assert_close(found, other, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_padding_and_the_size_of_batches_change_no_loss():
    objective, model = written("retrieve-learned")
    batch = batch_of(objective)
    together = objective.loss(model, batch, batch.noise)["retrieve-learned"]
    alone = [objective.loss(model, one := batch_of(objective, ROWS[[row]]), one.noise) for row in range(len(ROWS))]
    total = sum(float(one["retrieve-learned"].total) for one in alone)
    assert float(together.total) == pytest.approx(total, rel=1e-9)


@torch.no_grad()
def test_likelihoods_are_those_of_the_function_for_any_encoder_decoder():
    """Its first segment only, as `sequence_log_likelihoods` knows none."""
    objective, model = written("closed-book")
    _, _, vocabulary = tiny_world()
    batch = batch_of(objective, ROWS[:4])
    none = np.zeros(4, dtype=bool)
    choice = model.choose(batch.input_ids, batch.attention_mask, 1, none - 1, none, [()] * 4, ~none)
    model.reader.encoder.embeddings.token_type_embeddings.weight[1] = (
        model.reader.encoder.embeddings.token_type_embeddings.weight[0]
    )
    logs, there = model.log_likelihoods(batch.input_ids, batch.attention_mask, batch.labels, choice)
    for row in range(4):
        x = batch.input_ids[row][batch.real[row]]
        answer = batch.labels[row][batch.labels[row] != UNSUPERVISED]
        answer = torch.cat([answer, answer.new_tensor([vocabulary.end])])
        tokens = torch.cat([x, x[-1:]])[None, None]
        same = sequence_log_likelihoods(model.reader, tokens, torch.ones_like(tokens), answer[None], vocabulary.start)
        torch.testing.assert_close(logs[row, 0][there[row]], same[0, 0])


def test_the_encoder_begins_as_the_masked_lm_does():
    encoder, reader = tiny_writer().encoder.state_dict(), tiny_reader().bert.state_dict()
    assert encoder.keys() == reader.keys()
    assert all(torch.equal(value, reader[name]) for name, value in encoder.items())


# -- what is read of it -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A reader that has learned what relations' objects are, and some of the facts."""
    objective, model = tiny_arm("read-gold", writes=True)
    before = evaluate(objective, model, tiny_data()).loss
    config = tiny_config(updates=60, batch_sentences=24, micro_tokens=4000)
    train(objective, config, tiny_data(), model, tmp_path_factory.mktemp("taught") / "run")
    assert evaluate(objective, model, tiny_data()).loss < before - 2
    return model.eval()


def facts_and_candidates(model, **options):
    world, tokenizer, _ = tiny_world()
    facts = world.of_kind("trained", "held out")[::3]
    return facts, question_candidates(model, world, tokenizer, facts, **options)


@torch.no_grad()
def log_probability(model, question, found, number, place, level):
    """log p of one object of a question's relation, with every passage that was found."""
    world, tokenizer, vocabulary = tiny_world()
    relation = world.facts[question.fact].relation
    answer = tokenizer.convert_tokens_to_ids(list(world.words.object_words(relation, place)))
    words = tokenizer.convert_tokens_to_ids(question.masked().split())
    x = torch.tensor([vocabulary.start, *words, vocabulary.end])
    there = found.there[number]
    read = [with_passage(model, x, id) for id in found.ids[number][there]]
    likely = torch.stack([spelt(model.reader, *one, answer).double() for one in read])
    return summed_out(torch.from_numpy(found.log_prior[number][there]).exp(), likely, level)


@pytest.mark.parametrize("level", ["sequence", "token"])
@torch.no_grad()
def test_objects_are_weighed_by_what_the_reader_would_write(taught, level):
    """Each object spelt out by itself, with every passage, and no step shared."""
    world, tokenizer, _ = tiny_world()
    facts, found = facts_and_candidates(taught)
    logs = own_log_probabilities(taught, world, tokenizer, facts, found, level=level)
    for number, question in list(enumerate(world.questions(facts)))[::20]:
        relation = world.facts[question.fact].relation
        choices = range(world.config.choices(relation))
        wanted = torch.stack([log_probability(taught, question, found, number, place, level) for place in choices])
        np.testing.assert_allclose(logs[number][: len(wanted)], wanted.log_softmax(dim=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("level", "decoding"), [("sequence", "thorough"), ("sequence", "fast"), ("token", "thorough")])
def test_what_is_surer_than_all_else_is_decoded(taught, level, decoding):
    """An answer of more than one half of the probability is the best, and no beam can miss it."""
    taught = copy.deepcopy(taught)
    norm = taught.reader.decoder.cls.predictions.transform.LayerNorm
    for parameter in norm.parameters():  # what it says, it says surely
        parameter.data *= 8.0
    world, tokenizer, _ = tiny_world()
    facts, found = facts_and_candidates(taught)
    right = decoded_answers(taught, world, tokenizer, facts, found, level=level, decoding=decoding)
    questions = list(enumerate(world.questions(facts)))
    logs = [
        log_probability(taught, one, found, number, world.facts[one.fact].object, level) for number, one in questions
    ]
    sure = torch.stack(logs).exp().numpy() > 0.5
    assert sure.any()
    assert right[sure].all()


def test_knowledge_is_asked_of_it_as_of_a_masked_lm(taught):
    world, tokenizer, _ = tiny_world()
    table = knowledge(taught, world, tokenizer, documents=("none", "gold", "own"))
    p1 = table[(table["metric"] == "p1") & (table["facts"] == "trained") & (table["weight"] == -1)]
    right = p1.set_index("document")["value"]
    assert set(right.index) == {"none", "gold", "own"}
    assert right["gold"] > p1.set_index("document")["baseline"]["gold"] + 0.1


def test_answers_of_a_masked_lm_are_not_decoded():
    world, tokenizer, _ = tiny_world()
    _, model = tiny_arm("read-gold")
    model.eval()
    facts, found = facts_and_candidates(model)
    with pytest.raises(UserError, match="fills in masks"):
        decoded_answers(model, world, tokenizer, facts, found)


def test_the_reader_is_taken_as_it_is():
    objective, model = tiny_arm("closed-book", writes=True)
    writer = tiny_writer()
    assert retrieval_model(objective, writer).reader is writer
    assert model.positions == 64
