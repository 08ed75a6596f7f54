"""What lenses, probes and clusters read off states: against loops, and states of which all is known."""

import math

import numpy as np
import pytest
import torch
from evidence.readers import Speaker, memoriser
from retrieval.tiny_arms import tiny_arm, tiny_reader, tiny_world

from infoflow.corpus import FactConfig, generate_facts
from infoflow.evidence import (
    entry_rows,
    fact_inputs,
    fact_lens,
    half_of_entities,
    information_rows,
    knowledge_lens,
    probe_rows,
)
from infoflow.foundation import UserError, make_display, use_display
from infoflow.representations import LensTraining, TunedLens


@pytest.mark.parametrize(
    ("document", "kind"), [("gold", "trained"), ("retrieved", "trained"), ("retrieved", "changed")]
)
def test_numbers_equal_a_loop_over_questions_and_layers(document, kind):
    world, tokenizer, _ = tiny_world()
    reader, lens = tiny_reader().eval(), TunedLens(2, 16)
    with torch.no_grad():
        for parameter in [*reader.parameters(), *lens.parameters()]:
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    _, model = tiny_arm("retrieve-bm25")
    model.reader = reader
    options = {"kinds": (kind,), "documents": (document,), "lens": lens, "probes": False}
    table = knowledge_lens(model, world, tokenizer, **options)
    half, number = half_of_entities(world), tokenizer.get_vocab()
    facts = [fact for fact in world.of_kind(kind) if fact.entity not in half]
    first = None
    if document == "retrieved":
        special = model.passage_library.vocabulary.is_special
        asked = fact_inputs(world, tokenizer, facts, "none").input_ids
        first = [int(np.argmax(model.passage_library.lexical.scores(row[~special[row]].tolist()))) for row in asked]
        golds = [world.gold(world.facts[question.fact]) for question in world.questions(facts)]
        hits = sum(one == gold for one, gold in zip(first, golds, strict=True))
        assert 0 < hits < len(first) or kind == "changed", "both kinds of passages are read"
    inputs = fact_inputs(world, tokenizer, facts, document, passages=first)
    found = {}
    for row, fact in enumerate(inputs.facts):
        real = inputs.parts[row] != 0
        ids, segments = (torch.tensor(one[row][real])[None] for one in (inputs.input_ids, inputs.token_type_ids))
        masks = [place for place, id in enumerate(ids[0].tolist()) if id == tokenizer.mask_token_id]
        with torch.no_grad():
            states = reader(input_ids=ids, token_type_ids=segments, output_hidden_states=True).hidden_states
            for name in ("logit", "tuned"):
                for layer, state in enumerate(states):
                    moved = state[0] if name == "logit" else lens(state[0], layer)
                    logs = reader.cls(moved).double().log_softmax(-1).numpy()
                    scores = np.array(
                        [
                            sum(logs[place, number[word]] for place, word in zip(masks, one.split(), strict=True))
                            for one in world.answers(fact.relation)
                        ]
                    )
                    shares = np.exp(scores) / np.exp(scores).sum()
                    values = {
                        "probability": shares[fact.object],
                        "rank": 1 + sum(score > scores[fact.object] for score in scores),
                        "p1": scores.argmax() == fact.object,
                    }
                    for metric, value in values.items():
                        found.setdefault((name, layer, metric), []).append(value)
    for (name, layer, metric), values in found.items():
        chosen = table[(table.lens == name) & (table.layer == layer) & (table.metric == metric) & (table.weight == -1)]
        assert chosen.value.item() == pytest.approx(np.mean(values), abs=1e-5)
        assert chosen["count"].item() == len(values)


def test_a_lens_is_trained_on_other_facts_and_comes_nearer_to_the_output():
    world, tokenizer, _ = tiny_world()
    reader = tiny_reader().eval()
    with torch.no_grad():
        for parameter in reader.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    training = LensTraining(steps=120)
    lens = fact_lens(reader, world, tokenizer, training=training)
    again = fact_lens(reader, world, tokenizer, training=training)
    assert all(torch.equal(a, b) for a, b in zip(lens.parameters(), again.parameters(), strict=True))
    half = half_of_entities(world)
    inputs = fact_inputs(world, tokenizer, [one for one in world.facts if one.entity not in half], "none")
    with torch.no_grad():
        states = reader(**inputs.tensors(), output_hidden_states=True).hidden_states
        rows = torch.arange(len(inputs))
        at = [state[rows, torch.from_numpy(inputs.masks[:, 0])] for state in states]
        final = reader.cls(at[-1]).log_softmax(-1)
        for layer in (0, 1):
            plain, tuned = (reader.cls(one).log_softmax(-1) for one in (at[layer], lens(at[layer], layer)))
            away = [(final.exp() * (final - one)).sum(-1).mean() for one in (plain, tuned)]
            assert away[1] < away[0]


def test_where_evidence_enters_is_that_of_the_mean_gains():
    world, tokenizer, _ = tiny_world()
    facts = world.of_kind("trained")
    gold, none = (fact_inputs(world, tokenizer, facts, document) for document in ("gold", "none"))
    without = np.full((6, len(none)), 0.1)
    gains = np.array([0, 0.02, 0.05, 0.3, 0.8, 0.9])[:, None]
    curves = {("tuned", "gold"): (np.log(without + gains), gold), ("tuned", "none"): (np.log(without), none)}
    found = fact_inputs(world, tokenizer, facts, "retrieved", passages=[0] * len(none))
    late = np.array([0, 0, 0, 0, 0, 0.1])[:, None]
    curves["tuned", "retrieved"] = np.log(without + late), found
    rows = {(row["document"], row["metric"], row["weight"]): row for row in entry_rows(curves)}
    for weight in (-1, 1, 2):
        half, centre = (rows["gold", metric, weight] for metric in ("half", "centre"))
        assert [half[end] for end in ("low", "value", "high")] == [3, 4, 5]  # a layer to either side, at least
        assert centre["value"] == pytest.approx(3.7)
        assert centre["low"] == pytest.approx(3.7)
        assert math.isnan(rows["none", "half", weight]["value"])  # below a guess: nothing is read
        assert [rows["retrieved", metric, weight]["value"] for metric in ("half", "centre")] == [5, pytest.approx(5)]
    useless = {**curves, ("tuned", "retrieved"): (np.log(without), found)}
    undefined = [row for row in entry_rows(useless) if row["document"] == "retrieved"]
    assert undefined
    assert all(math.isnan(row["value"]) for row in undefined)
    known = {("tuned", "none"): (np.log(np.linspace(0.05, 0.9, 6)[:, None] + 0 * without), none)}
    assert next(entry_rows(known))["value"] in (3, 4)


def test_probes_find_what_states_hold_and_controls_do_not():
    world = generate_facts(FactConfig(entities=60, relations=4, objects=3, withheld=0.0, held_out=0.1))
    tokenizer = world.tokenizer()
    reader = Speaker(world, tokenizer, memoriser).eval()
    rows = list(probe_rows(reader, world, tokenizer, least=5))

    def value(metric, layer, place, facts="trained"):
        (found,) = [
            row["value"]
            for row in rows
            if (row["metric"], row["layer"], row["place"], row["facts"], row["weight"])
            == (metric, layer, place, facts, -1)
        ]
        return found

    assert value("accuracy", 1, "mask") == 1
    assert value("accuracy", 1, "mask", "held out") == 1
    assert value("accuracy", 1, "mask", "changed") == 1
    assert value("accuracy", 0, "mask", "changed") < 0.8
    half = half_of_entities(world)
    changed = [one for one in world.of_kind("changed") if one.entity not in half]
    asked = [one for one in changed if one.relation not in world.config.date_relations]
    for weight in (-1, *{one.weight for one in asked}):
        own = [row for row in rows if (row["facts"], row["weight"]) == ("changed", weight)]
        assert len(own) == 2 * 2 * 2  # metrics, places, states
        assert {row["count"] for row in own} == {2 * sum(weight in (-1, one.weight) for one in asked)}
    assert value("control", 1, "mask") < 0.6
    assert value("accuracy", 1, "subject") < 0.6  # nothing stands there
    assert value("accuracy", 0, "mask") < 0.6
    assert all(row["baseline"] == pytest.approx(1 / 3) for row in rows)


def test_where_no_depth_is_told_it_is_said():
    world, tokenizer, _ = tiny_world()
    display, notes = make_display("silent"), []
    display.note = notes.append
    with use_display(display):
        knowledge_lens(tiny_reader().eval(), world, tokenizer, documents=("none",), lens=TunedLens(2, 16))
    (told,) = [text for text in notes if "undefined" in text]
    assert "held out facts with the document none" in told


def test_a_probe_of_few_facts_is_refused_with_a_reason():
    world, tokenizer, _ = tiny_world()
    rows = list(probe_rows(tiny_reader().eval(), world, tokenizer))
    assert len(rows) == 4
    assert all(math.isnan(row["value"]) and row["count"] == 0 and row["layer"] == -1 for row in rows)
    table = knowledge_lens(tiny_reader().eval(), world, tokenizer, documents=("none",), lens=TunedLens(2, 16))
    assert table[table.lens == "probe"].value.isna().all()


def test_clusters_tell_the_answer_where_states_hold_it():
    world, tokenizer, _ = tiny_world()
    inputs = fact_inputs(world, tokenizer, world.of_kind("trained"), "none")
    answers = inputs.candidates[np.arange(len(inputs)), inputs.answers, 0]
    known = torch.nn.functional.one_hot(torch.from_numpy(answers)).float()[None, :, None]
    rows = list(information_rows(torch.cat([torch.zeros_like(known), known]), inputs))
    assert [row["layer"] for row in rows] == [0, 1]
    assert rows[0]["value"] == pytest.approx(0, abs=0.05)
    assert rows[1]["value"] > rows[1]["baseline"] - 0.05
    assert rows[1]["value"] > 0.3
    few = inputs.take(np.arange(10))
    with pytest.raises(UserError, match="at least 40 questions"):
        list(information_rows(known[:, :10], few))


def test_a_world_too_small_for_clusters_keeps_its_lenses():
    world, tokenizer, _ = tiny_world()
    options = {"documents": ("none",), "most": 1, "probes": False}
    table = knowledge_lens(tiny_reader().eval(), world, tokenizer, clusters=True, **options)
    assert set(table["lens"]) == {"logit", "tuned"}
