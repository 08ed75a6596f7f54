"""Where heads look from the mask, against loops over rows, heads and tokens without padding."""

import numpy as np
import pandas as pd
import pytest
import torch
from evidence.sharp_reader import facts_of_kind, inputs_of, sharp_reader
from retrieval.tiny_arms import tiny_arm, tiny_reader, tiny_world

from infoflow.evidence import TokenPart, attention_shares, evidence_heads, fact_blocks, fact_inputs
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.models import load_model, tap
from infoflow.subjects.retrieval.measures._evidence_heads import copy_scores, head_readings


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
    with pytest.raises(UserError, match="the same number of tokens"):
        attention_shares(weights, np.ones((1, 5), dtype=bool))


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
