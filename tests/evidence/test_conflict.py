"""Whose answer is given: readers that copy, remember, or do neither; the lens against single rows."""

import math

import numpy as np
import pytest
import torch
from evidence.readers import Speaker, copier, memoriser
from retrieval.tiny_arms import tiny_reader, tiny_world

from infoflow.evidence import fact_inputs, half_of_entities, knowledge_conflict
from infoflow.foundation import UserError
from infoflow.models import memorisation_ratio
from infoflow.representations import TunedLens


def neither(fact, read):
    """Some object that is neither trained nor read."""
    return next(one for one in range(3) if one not in (fact.object, read))


def table_of(rule):
    world, tokenizer, _ = tiny_world()
    reader = Speaker(world, tokenizer, rule).eval()
    table = knowledge_conflict(reader, world, tokenizer, lens=TunedLens(1, len(tokenizer)))
    return {(row.metric, row.layer): row for row in table.itertuples() if row.facts == "trained" and row.weight == -1}


def test_one_that_copies_follows_the_document_and_one_that_remembers_does_not():
    found, kept = table_of(copier), table_of(memoriser)
    assert [found[one, -1].value for one in ("old", "document", "memorisation_ratio")] == [0, 1, 0]
    assert [kept[one, -1].value for one in ("old", "document", "memorisation_ratio")] == [1, 0, 1]
    assert found["difference", -1].value == pytest.approx(-kept["difference", -1].value)
    assert found["difference", 1].value > 8  # state 1 is the output; 9 for a token, 18 where a date differs in both
    assert found["difference", 0].value == pytest.approx(0, abs=1e-6)


def test_a_ratio_of_nothing_is_no_number():
    row = table_of(neither)["memorisation_ratio", -1]
    assert math.isnan(row.value)
    assert math.isnan(row.low)
    assert row.count == 0


def test_numbers_equal_a_loop_over_questions_and_layers():
    world, tokenizer, _ = tiny_world()
    reader, lens = tiny_reader().eval(), TunedLens(2, 16)
    with torch.no_grad():
        for parameter in [*reader.parameters(), *lens.parameters()]:
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    table = knowledge_conflict(reader, world, tokenizer, kinds=("trained",), lens=lens)
    table = table[table.weight == -1]
    half, number = half_of_entities(world), tokenizer.get_vocab()
    inputs = fact_inputs(world, tokenizer, world.of_kind("trained"), "conflict")
    said, old, new, differences = [], [], [], {layer: [] for layer in (-1, 0, 1, 2)}
    for row, fact in enumerate(inputs.facts):
        real = inputs.parts[row] != 0
        ids, segments = (torch.tensor(one[row][real])[None] for one in (inputs.input_ids, inputs.token_type_ids))
        masks = [place for place, id in enumerate(ids[0].tolist()) if id == tokenizer.mask_token_id]
        with torch.no_grad():
            states = reader(input_ids=ids, token_type_ids=segments, output_hidden_states=True).hidden_states
            answers = world.answers(fact.relation)
            for layer in (-1, 0, 1, 2):
                if layer >= 0 and fact.entity in half:
                    continue
                state = states[layer][0] if layer < 0 else lens(states[layer][0], layer)
                logs = reader.cls(state).double().log_softmax(-1).numpy()
                scores = [
                    sum(logs[place, number[word]] for place, word in zip(masks, one.split(), strict=True))
                    for one in answers
                ]
                differences[layer].append(scores[world.conflict(fact)] - scores[fact.object])
                if layer < 0:
                    said.append(answers[int(np.argmax(scores))])
                    old.append(answers[fact.object])
                    new.append(answers[world.conflict(fact)])
    for layer, values in differences.items():
        here = table[(table.metric == "difference") & (table.layer == layer)]
        assert here.value.item() == pytest.approx(np.mean(values), abs=1e-4)
        assert here["count"].item() == len(values)
    ratio = table[table.metric == "memorisation_ratio"].value.item()
    assert ratio == pytest.approx(memorisation_ratio(said, old, new), nan_ok=True)
    assert table[table.metric == "old"].value.item() == pytest.approx(np.mean(np.array(said) == np.array(old)))


def test_a_lens_of_another_model_is_refused():
    world, tokenizer, _ = tiny_world()
    with pytest.raises(UserError, match="layers and width"):
        knowledge_conflict(tiny_reader().eval(), world, tokenizer, lens=TunedLens(3, 16))
