"""Knock-outs, removals and tracing, against attention written out with −∞ at what is forbidden."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from evidence.sharp_reader import facts_of_kind, inputs_of, sharp_reader
from retrieval.tiny_arms import tiny_arm, tiny_world
from torch.nn.functional import layer_norm

from infoflow.corpus import FactConfig, generate_facts
from infoflow.evidence import (
    TokenPart,
    answer_log_probabilities,
    choice_log_probabilities,
    evidence_ablation,
    evidence_flow,
    evidence_heads,
    fact_inputs,
)
from infoflow.foundation import UserError
from infoflow.models import load_model, tap, without_token
from infoflow.subjects.retrieval.measures._evidence_flow import (
    Restored,
    mention_noise,
    mentions,
    subject_noise,
    traced_answers,
)
from infoflow.subjects.retrieval.measures._knock_out import (
    KNOCK_OUTS,
    answers_without_edges,
    at,
    edges,
    knock_outs,
    last_token,
    random_edges,
    random_word,
    removals,
)

NUM_LAYERS = 2
ALL = frozenset(range(NUM_LAYERS))


def by_hand(reader, inputs, forbidden, layers, noise=None, restored=None):
    """A BERT, written out: attention as softmax over scores that are −∞ at forbidden keys and at padding.

    Returns logits, and what attention and FFN put out in each layer. `restored` maps (site, layer) to outputs and the
    tokens (bool) where they are put in.
    """
    bert, eps = reader.bert, reader.config.layer_norm_eps
    tokens = {name: torch.from_numpy(getattr(inputs, name)) for name in ("input_ids", "token_type_ids")}
    words = bert.embeddings.word_embeddings(tokens["input_ids"])
    if noise is not None:
        words = words + torch.from_numpy(noise)
    length = words.shape[1]
    states = words + bert.embeddings.token_type_embeddings(tokens["token_type_ids"])
    states = states + bert.embeddings.position_embeddings(torch.arange(length))
    states = bert.embeddings.LayerNorm(states)
    outputs, heads = {}, reader.config.num_attention_heads

    def site(name, layer, output):
        outputs[name, layer] = output
        if restored and (name, layer) in restored:
            clean, where = restored[name, layer]
            return torch.where(torch.from_numpy(where)[:, :, None], clean, output)
        return output

    for number, block in enumerate(bert.encoder.layer):
        attention = block.attention.self
        q, k, v = (
            projection(states).unflatten(-1, (heads, -1)).transpose(1, 2)
            for projection in (attention.query, attention.key, attention.value)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        hidden = torch.from_numpy(inputs.attention_mask == 0)[:, None].expand(-1, length, -1).clone()
        if number in layers:
            hidden |= torch.from_numpy(np.array(forbidden))
        scores = scores.masked_fill(hidden[:, None], -math.inf)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        mixed = site("attention", number, block.attention.output.dense(context))
        norm = block.attention.output.LayerNorm
        states = layer_norm(states + mixed, states.shape[-1:], norm.weight, norm.bias, eps)
        inner = torch.relu(block.intermediate.dense(states))
        added = site("ffn", number, block.output.dense(inner))
        norm = block.output.LayerNorm
        states = layer_norm(states + added, states.shape[-1:], norm.weight, norm.bias, eps)
    return reader.cls(states), outputs


@torch.no_grad()
def logs_by_hand(reader, inputs, *args, **kwargs):
    logits, outputs = by_hand(reader, inputs, *args, **kwargs)
    return choice_log_probabilities(logits, inputs), outputs


def close(found, expected):
    return np.allclose(found, expected, atol=2e-4)


# -- knock-outs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", KNOCK_OUTS)
def test_knock_outs_equal_attention_written_out(what):
    reader, inputs = sharp_reader(), inputs_of(num=5)
    model, forbidden = load_model(reader), edges(inputs, what)
    variants = [(forbidden, frozenset(layers)) for layers in ([0], [1], [0, 1])]
    clean, found = answers_without_edges(model, inputs, variants, batch=4)
    nothing = np.zeros_like(forbidden)
    assert close(clean, logs_by_hand(reader, inputs, nothing, [])[0])
    for (_, layers), logs in zip(variants, found, strict=True):
        assert close(logs, logs_by_hand(reader, inputs, forbidden, layers)[0])
    top = found[1] == clean
    assert not top.all() or what == "evidence→query"  # what happens beside the mask in the last block is never read


def test_forbidding_nothing_changes_nothing():
    model, inputs = load_model(sharp_reader()), inputs_of(num=5)
    nothing = np.zeros((len(inputs), *inputs.input_ids.shape[1:] * 2), dtype=bool)
    for layers in (ALL, frozenset([1]), frozenset[int]()):
        clean, found = answers_without_edges(model, inputs, [(nothing, layers)], batch=len(inputs))
        assert (found[0] == clean).all()
    assert np.allclose(clean, answer_log_probabilities(model.module, inputs), atol=1e-5)


def test_without_any_way_from_the_evidence_it_might_be_any_other():
    """query→evidence in all blocks: the answer is the same with the gold document, another one and a conflict."""
    reader, found = sharp_reader(), []
    for document in ("gold", "conflict", "random"):
        inputs = inputs_of(document, num=5)
        forbidden = edges(inputs, "query→evidence")
        found.append(answers_without_edges(load_model(reader), inputs, [(forbidden, ALL)])[1][0])
    assert np.allclose(found[0], found[1], atol=1e-5)
    assert np.allclose(found[0], found[2], atol=1e-5)
    open_ways = [answer_log_probabilities(reader, inputs_of(one, num=5)) for one in ("gold", "random")]
    assert not np.allclose(*open_ways, atol=1e-3)


def test_edges_are_between_what_their_names_say():
    inputs = inputs_of(num=4)
    for row in range(len(inputs)):
        for what, start, end in (
            ("mask→evidence", {TokenPart.MASK}, None),
            ("mask→subject", {TokenPart.MASK}, {TokenPart.SUBJECT}),
            ("mask→object", {TokenPart.MASK}, {TokenPart.EVIDENCE_OBJECT}),
        ):
            queries, keys = edges(inputs, what)[row].nonzero()
            assert set(inputs.parts[row][queries]) == start
            if end is not None:
                assert set(inputs.parts[row][keys]) == end
                assert len(queries) == sum(np.isin(inputs.parts[row], [*start]) * 1) * sum(
                    np.isin(inputs.parts[row], [*end]) * 1
                )
        queries, keys = edges(inputs, "query→evidence")[row].nonzero()
        real = inputs.parts[row] != TokenPart.PAD
        assert set(queries) == set(np.flatnonzero(real & (inputs.token_type_ids[row] == 0)))
        assert set(keys) == set(np.flatnonzero(real & (inputs.token_type_ids[row] == 1)))
        assert (edges(inputs, "evidence→query")[row] == edges(inputs, "query→evidence")[row].T).all()
    assert not edges(inputs_of("none"), "mask→evidence").any()


def test_random_edges_are_as_many_others_and_depend_on_the_question_alone():
    inputs = inputs_of(num=4)
    for what in KNOCK_OUTS:
        forbidden = edges(inputs, what)
        drawn = random_edges(inputs, forbidden, what, seed=3)
        real = inputs.parts != TokenPart.PAD
        assert (drawn.sum(axis=(1, 2)) == forbidden.sum(axis=(1, 2))).all()
        assert not (drawn & forbidden).any()
        assert not drawn[:, np.arange(drawn.shape[1]), np.arange(drawn.shape[1])].any()
        assert not (drawn & ~(real[:, :, None] & real[:, None])).any()
        some = np.array([0, 1, 4, 5])
        again = random_edges(inputs.take(some), forbidden[some], what, seed=3)
        assert (again == drawn[some]).all()
        assert (random_edges(inputs, forbidden, what, seed=4) != drawn).any()


def test_padding_and_batches_change_nothing():
    model, inputs = load_model(sharp_reader()), inputs_of(num=6)
    tried = knock_outs(inputs, NUM_LAYERS, seed=0)[:6]
    variants = [(one.edges, one.layers) for one in tried]
    whole = answers_without_edges(model, inputs, variants, batch=100)[1]
    assert np.allclose(whole, answers_without_edges(model, inputs, variants, batch=1)[1], atol=1e-4)
    wide = {name: np.pad(getattr(inputs, name), ((0, 0), (0, 3))) for name in ("input_ids", "token_type_ids", "parts")}
    padded = replace(inputs, **wide)
    again = [(np.pad(one.edges, ((0, 0), (0, 3), (0, 3))), one.layers) for one in tried]
    assert np.allclose(whole, answers_without_edges(model, padded, again)[1], atol=1e-4)
    for one, other in zip(knock_outs(padded, NUM_LAYERS, seed=0), tried, strict=False):
        assert (one.edges[:, :-3, :-3] == other.edges).all()
        assert one.edges.sum() == other.edges.sum()


# -- removals ---------------------------------------------------------------------------------------------------------


def test_removals_are_those_of_the_influence_measure():
    reader, inputs = sharp_reader(), inputs_of(num=5)
    model = load_model(reader)
    for one in removals(inputs, NUM_LAYERS, seed=0):
        places = torch.from_numpy(one.edges[:, 0].argmax(axis=1))
        assert (one.edges.any(axis=1).sum(axis=1) == 1).all()

        def remove(call, places=places, layers=one.layers):
            return without_token(call, places) if call.layer in layers else None

        with tap(model, on_attention=remove):
            expected = answer_log_probabilities(reader, inputs, batch=len(inputs))
        found = answers_without_edges(model, inputs, [(one.edges, one.layers)])[1][0]
        assert np.allclose(found, expected, atol=1e-5)
        assert close(found, logs_by_hand(reader, inputs, one.edges, one.layers)[0])


def test_the_tokens_that_are_removed():
    inputs = inputs_of(num=6)
    last = last_token(inputs, TokenPart.SUBJECT)
    for row, place in enumerate(last):
        assert place == max(np.flatnonzero(inputs.parts[row] == TokenPart.SUBJECT))
    assert (last_token(inputs_of("none", num=6), TokenPart.EVIDENCE_OBJECT) == -1).all()
    words = random_word(inputs, "test", 0, of_passage=True)
    assert set(inputs.parts[np.arange(len(inputs)), words]) <= {TokenPart.EVIDENCE, TokenPart.EVIDENCE_RELATION}
    assert (at(words, inputs.parts.shape[1]).sum(axis=1) == 1).all()


# -- tracing ----------------------------------------------------------------------------------------------------------


def test_tracing_equals_a_run_written_out():
    reader, inputs = sharp_reader(), inputs_of(num=5)
    noise, model = subject_noise(load_model(reader), inputs, seed=0), load_model(reader)
    nothing = np.zeros((len(inputs), *inputs.input_ids.shape[1:] * 2), dtype=bool)
    clean_logs, outputs = logs_by_hand(reader, inputs, nothing, [])
    subject = at(last_token(inputs, TokenPart.SUBJECT), inputs.parts.shape[1])
    masks = inputs.parts == TokenPart.MASK
    variants = [
        Restored(((site, layer),), tokens)
        for site in ("ffn", "attention")
        for layer in range(NUM_LAYERS)
        for tokens in (subject, masks)
    ]
    clean, noisy, found = traced_answers(model, inputs, noise, variants, batch=4)
    assert close(clean, clean_logs)
    noisy_logs, _ = logs_by_hand(reader, inputs, nothing, [], noise)
    assert close(noisy, noisy_logs)
    assert not np.allclose(clean, noisy, atol=1e-2)
    for one, logs in zip(variants, found, strict=True):
        restored = {place: (outputs[place], one.tokens) for place in one.sites}
        assert close(logs, logs_by_hand(reader, inputs, nothing, [], noise, restored)[0])


def test_restoring_everything_at_the_mask_regains_everything():
    model, inputs = load_model(sharp_reader()), inputs_of(num=5)
    noise = subject_noise(model, inputs, seed=0)
    every = tuple((site, layer) for site in ("ffn", "attention") for layer in range(NUM_LAYERS))
    masks, nowhere = inputs.parts == TokenPart.MASK, np.zeros(inputs.parts.shape, dtype=bool)
    variants = [Restored(every, masks), Restored(every, nowhere)]
    clean, noisy, found = traced_answers(model, inputs, noise, variants)
    assert np.allclose(found[0], clean, atol=1e-5)
    assert np.allclose(found[1], noisy, atol=1e-5)
    clean, noisy, _ = traced_answers(model, inputs, 0 * noise, [])
    assert np.allclose(clean, noisy, atol=1e-6)


def test_noise_is_three_deviations_and_on_the_subject_alone():
    reader, inputs = sharp_reader(), inputs_of()
    noise = subject_noise(load_model(reader), inputs, seed=0)
    there = np.isin(inputs.parts, [TokenPart.SUBJECT, TokenPart.EVIDENCE_SUBJECT])
    assert (noise[~there] == 0).all()
    spread = float(reader.bert.embeddings.word_embeddings.weight.detach().std())
    assert noise[there].std() == pytest.approx(3 * spread, rel=0.03)
    some = np.array([2, 3])
    assert (subject_noise(load_model(reader), inputs.take(some), seed=0) == noise[some]).all()


def test_every_sentence_of_a_passage_may_mention_the_subject():
    """Against the sentences of the world: each of one entity's passage names it, and one of them answers."""
    world, _, _ = tiny_world()
    inputs = inputs_of()
    found, num = mentions(inputs), 0
    for row, fact in enumerate(inputs.facts):
        sentences = world.passage_sentences(world.gold(fact))
        named = [one for one in sentences if world.facts[one.fact].entity == fact.entity]
        assert found[row].sum() == 2 * (1 + len(named))  # a given and a family name
        first = inputs.input_ids[row, inputs.parts[row] == TokenPart.SUBJECT].tolist()
        assert inputs.input_ids[row, found[row]].tolist() == first * (1 + len(named))
        num += len(named) > 1
    assert num, "no passage of this world has a second sentence"
    assert (mentions(inputs_of("none")) == (inputs_of("none").parts == TokenPart.SUBJECT)).all()


def test_noise_on_every_mention_equals_a_run_written_out():
    reader, world, tokenizer = sharp_reader(), *tiny_world()[:2]
    options = {"kinds": ("held out",), "documents": ("gold", "none"), "facts": 4}
    table = evidence_flow(reader, world, tokenizer, methods=("tracing", "tracing every mention"), **options)
    every = table[table["method"] == "tracing every mention"]
    assert set(every["document"]) == {"gold"}, "a question names its subject once"
    inputs = fact_inputs_of(world, tokenizer)
    noise = mention_noise(load_model(reader), inputs, seed=0)
    assert (noise.any(axis=2) == mentions(inputs)).all()
    assert (noise.any(axis=2) != subject_noise(load_model(reader), inputs, seed=0).any(axis=2)).any()
    nothing = np.zeros((len(inputs), *inputs.input_ids.shape[1:] * 2), dtype=bool)
    (clean, outputs), (noisy, _) = (logs_by_hand(reader, inputs, nothing, [], one) for one in (None, noise))
    subject = at(last_token(inputs, TokenPart.SUBJECT), inputs.parts.shape[1])
    restored = {("ffn", 0): (outputs["ffn", 0], subject)}
    back = logs_by_hand(reader, inputs, nothing, [], noise, restored)[0]
    right = np.arange(len(inputs)), inputs.answers
    expected = {"noise": np.exp(clean) - np.exp(noisy), "ffn at the subject": np.exp(back) - np.exp(noisy)}
    for what, values in expected.items():
        row = every[(every["what"] == what) & (every["layer"] <= 0)].iloc[0]
        assert row["value"] == pytest.approx(values[right].mean(), abs=1e-4)


def test_a_passage_that_names_each_entity_once_has_no_other_mention():
    world = generate_facts(FactConfig(entities=12, relations=4, objects=4, weights=(1, 2), passages="pairs"))
    inputs = fact_inputs(world, world.tokenizer(), world.of_kind("trained"), "gold")
    assert (mentions(inputs) == np.isin(inputs.parts, [TokenPart.SUBJECT, TokenPart.EVIDENCE_SUBJECT])).all()


# -- the table --------------------------------------------------------------------------------------------------------


def test_each_exposure_loses_what_its_own_questions_lose():
    """Of what is found, with the right passage and a random one: one question at a time, attention written out."""
    world, tokenizer, _ = tiny_world()
    _, model = tiny_arm("retrieve-bm25")
    model.reader = reader = sharp_reader()
    options = {"kinds": ("trained",), "documents": ("gold", "random", "retrieved"), "methods": ("knock-out",)}
    table = evidence_flow(model, world, tokenizer, facts=5, batch=4, **options)
    table = table[(table["what"] == "mask→evidence") & (table["scope"] == "upward") & (table["layer"] == 0)]
    facts = facts_of_kind(world, "trained", 5)
    special = model.passage_library.vocabulary.is_special
    asked = fact_inputs(world, tokenizer, facts, "none").input_ids
    first = [int(np.argmax(model.passage_library.lexical.scores(row[~special[row]].tolist()))) for row in asked]
    for document, passages in (("gold", None), ("random", None), ("retrieved", first)):
        inputs = fact_inputs(world, tokenizer, facts, document, passages=passages)
        forbidden = edges(inputs, "mask→evidence")
        random = random_edges(inputs, forbidden, "mask→evidence", seed=0)
        nothing = np.zeros_like(forbidden)
        runs = [(nothing, []), (forbidden, [0, 1]), (random, [0, 1])]
        right = np.arange(len(inputs)), inputs.answers
        clean, without, others = (logs_by_hand(reader, inputs, *one)[0][right] for one in runs)
        weights = np.array([fact.weight for fact in inputs.facts])
        for weight in (-1, *set(weights.tolist())):
            own = weights == weight if weight > 0 else weights > 0
            here = table[(table["document"] == document) & (table["weight"] == weight) & (table["metric"] == "nats")]
            assert here["value"].item() == pytest.approx((clean - without)[own].mean(), abs=1e-3)
            assert here["baseline"].item() == pytest.approx((clean - others)[own].mean(), abs=1e-3)
            assert here["count"].item() == own.sum()
        assert set(table["weight"]) == {-1, *weights.tolist()}


def test_what_is_found_by_the_reader_of_right_passages_is_the_right_one():
    world, tokenizer, _ = tiny_world()
    _, model = tiny_arm("read-gold")
    model.reader = sharp_reader()
    options = {"kinds": ("changed",), "methods": ("removal",), "facts": 3}
    table = evidence_flow(model, world, tokenizer, documents=("gold", "retrieved"), **options)
    gold, found = (table[table["document"] == one].drop(columns="document") for one in ("gold", "retrieved"))
    pd.testing.assert_frame_equal(gold.reset_index(drop=True), found.reset_index(drop=True))


def test_facts_that_stand_nowhere_are_asked_without_a_document_alone():
    world, tokenizer, _ = tiny_world()
    options = {"kinds": ("withheld",), "methods": ("knock-out",), "facts": 3}
    table = evidence_flow(sharp_reader(), world, tokenizer, **options)
    assert set(table["document"]) == {"none"}
    assert set(table["weight"]) == {-1}
    with pytest.raises(UserError, match="No fact of the kinds withheld has a document of the kinds gold"):
        evidence_flow(sharp_reader(), world, tokenizer, documents=("gold",), **options)


def test_the_table_says_what_is_lost_and_regained():
    world, tokenizer, _ = tiny_world()
    reader = sharp_reader()
    table = pd.DataFrame(evidence_flow(reader, world, tokenizer, kinds=("held out",), facts=4, batch=3))
    facts = sorted({fact.number for fact in fact_inputs_of(world, tokenizer).facts})
    assert len(facts) == 4
    assert set(table["count"]) == {8}
    inputs = fact_inputs_of(world, tokenizer)
    model = load_model(reader)
    forbidden = edges(inputs, "mask→object")
    clean, found = answers_without_edges(model, inputs, [(forbidden, frozenset([1]))])
    rows = np.arange(len(inputs))
    lost = clean[rows, inputs.answers] - found[0][rows, inputs.answers]
    gold = table[(table["document"] == "gold") & (table["metric"] == "nats")]
    for scope in ("block", "upward"):  # the uppermost block
        row = gold[(gold["what"] == "mask→object") & (gold["scope"] == scope) & (gold["layer"] == 1)].iloc[0]
        assert row["value"] == pytest.approx(lost.mean(), abs=1e-4)
    noise = table[(table["what"] == "noise") & (table["document"] == "gold")].iloc[0]
    clean, noisy, _ = traced_answers(model, inputs, subject_noise(model, inputs, 0), [])
    lost = np.exp(clean[rows, inputs.answers]) - np.exp(noisy[rows, inputs.answers])
    assert noise["value"] == pytest.approx(lost.mean(), abs=1e-4)
    none = table[table["document"] == "none"]
    assert set(none[none["method"] == "knock-out"]["what"]) == {"mask→subject"}
    assert set(none[none["method"] == "removal"]["what"]) == {"subject"}
    assert set(table[table["method"] == "tracing"]["what"]) >= {"noise", "ffn at the subject", "attention at the mask"}
    assert np.isfinite(table[["value", "baseline"]]).all(axis=None)


def fact_inputs_of(world, tokenizer):
    return fact_inputs(world, tokenizer, facts_of_kind(world, "held out", 4), "gold")


def test_an_unknown_method_is_said():
    world, tokenizer, _ = tiny_world()
    with pytest.raises(UserError, match="methods must be among knock-out"):
        evidence_flow(sharp_reader(), world, tokenizer, methods=("magic",))


# -- masked LMs of other families: shared layers, no segments, attention in code of their own ------------------------

READERS = {
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {"embedding_size": 8}),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {"type_vocab_size": 1}),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {}),
    "deberta": ("DebertaV2ForMaskedLM", "DebertaV2Config", {"relative_attention": True, "pos_att_type": "c2p|p2c"}),
}


def reader_of(family: str):
    _, tokenizer, _ = tiny_world()
    torch.manual_seed(0)
    model, config, options = READERS[family]
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if family == "distilbert":
        shape = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    settings = {**shape, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "pad_token_id": 0, **options}
    module = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)
    return module


@pytest.mark.parametrize("family", READERS)
def test_without_any_way_from_the_evidence_other_families_might_read_any_other(family):
    model, found, open_ways = load_model(reader_of(family)), [], []
    for document in ("gold", "conflict"):
        inputs = inputs_of(document, num=4)
        forbidden = edges(inputs, "query→evidence")
        clean, without = answers_without_edges(model, inputs, [(forbidden, frozenset([0, 1]))])
        found.append(without[0])
        open_ways.append(clean)
    assert np.allclose(found[0], found[1], atol=1e-4)
    assert not np.allclose(open_ways[0], open_ways[1], atol=1e-3)


@pytest.mark.parametrize("family", READERS)
def test_restoring_everything_at_the_mask_regains_everything_in_other_families(family):
    model, inputs = load_model(reader_of(family)), inputs_of(num=4)
    every = tuple((site, layer) for site in ("ffn", "attention") for layer in range(2))
    clean, noisy, found = traced_answers(
        model, inputs, subject_noise(model, inputs, 0), [Restored(every, inputs.parts == TokenPart.MASK)]
    )
    assert np.allclose(found[0], clean, atol=1e-4)
    assert not np.allclose(noisy, clean, atol=1e-3)


def test_tables_of_another_family():
    world, tokenizer, _ = tiny_world()
    reader = reader_of("roberta")
    heads = evidence_heads(reader, world, tokenizer, facts=2)
    groups = heads[heads["metric"].isin(["evidence", "question", "special", "itself"]) & (heads["weight"] == -1)]
    assert np.allclose(groups.groupby(["facts", "layer", "head"])["value"].sum(), 1)
    assert len(evidence_flow(reader, world, tokenizer, facts=2, kinds=("trained",)))
    assert np.isfinite(evidence_ablation(reader, world, tokenizer, facts=2, draws=1)["value"]).all()
