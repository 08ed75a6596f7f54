"""The world of facts: who may know what, and that nothing leaks."""

import re
from collections import Counter

import numpy as np
import pytest

from infoflow.corpus import FactConfig, fact_corpus, generate_facts, load_corpus
from infoflow.foundation import UserError

KNOWN = ("trained", "changed", "held out")


@pytest.fixture(scope="module", params=["entity", "pairs"])
def world(request):
    return generate_facts(FactConfig(entities=60, passages=request.param), seed=3)


@pytest.fixture(scope="module")
def corpus(world):
    return fact_corpus(world)


def says(text, name, answer):
    """Whether one sentence of the text holds both."""
    sentences = [f" {sentence} " for sentence in re.split(r" \.(?: |$)", text)]
    return any(f" {name} " in sentence and f" {answer} " in sentence for sentence in sentences)


def test_the_world_is_a_function_of_seed_and_settings():
    again, other = generate_facts(seed=1), generate_facts(seed=2)
    assert generate_facts(seed=1).facts == again.facts != other.facts
    assert generate_facts(seed=1).passages() == again.passages()


def test_a_larger_world_begins_with_the_smaller_one():
    small = generate_facts(FactConfig(entities=30), 5)
    large = generate_facts(FactConfig(entities=90), 5)
    assert large.facts[: len(small.facts)] == small.facts
    assert large.names[:30] == small.names
    assert large.passages()[: len(small.passages())] == small.passages()


def test_shares_are_those_of_the_settings():
    world = generate_facts(FactConfig(entities=1000), seed=0)
    counts = Counter(fact.kind for fact in world.facts)
    known = len(world.facts) - counts["later"]
    assert counts["later"] == pytest.approx(800, abs=8)
    assert counts["held out"] / known == pytest.approx(0.15, abs=0.015)
    assert counts["withheld"] / known == pytest.approx(0.15, abs=0.015)
    assert counts["changed"] / (counts["changed"] + counts["trained"]) == pytest.approx(1 / 7, abs=0.015)


def test_equally_many_trained_facts_have_each_weight(world):
    weights = Counter(fact.weight for fact in world.facts if fact.trained)
    assert set(weights) == {1, 4, 16}
    assert max(weights.values()) - min(weights.values()) <= 1
    assert all(fact.weight == 0 for fact in world.of_kind("held out", "withheld", "later"))


def test_objects_are_uniform_and_never_those_of_the_sister_relation():
    world = generate_facts(FactConfig(entities=1024), seed=0)
    for relation in range(8):
        objects = [fact.object for fact in world.facts if fact.relation == relation]
        counts = np.bincount(objects, minlength=world.config.choices(relation))
        chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert chi_square < len(counts) + 4 * np.sqrt(2 * len(counts))
    pairs = zip(world.facts[::2], world.facts[1::2], strict=True)
    assert all(first.object != second.object for first, second in pairs)


def test_zipf_has_a_most_frequent_object():
    world = generate_facts(FactConfig(entities=1000, zipf=True), seed=0)
    objects = Counter(fact.object for fact in world.facts if fact.relation == 0)
    assert objects[0] / 1000 == pytest.approx(1 / sum(1 / n for n in range(1, 17)), abs=0.05)


def test_no_training_sentence_tells_a_fact_that_it_should_not(world, corpus):
    """Neither the sentence, nor its object beside its subject."""
    about = {}
    for sentence in corpus:
        if sentence.label:
            about.setdefault(world.facts[int(sentence.label)].entity, set()).add(sentence.text)
    for fact in world.of_kind("held out", "withheld", "later"):
        name = " ".join(world.names[fact.entity])
        assert not any(says(text, name, world.answer(fact)) for text in about.get(fact.entity, ()))


def test_every_trained_fact_is_asked_for_by_its_weight_in_eight_wordings(world, corpus):
    asked = Counter(sentence.label for sentence in corpus if sentence.label)
    assert asked == {str(fact.number): 8 * fact.weight for fact in world.facts if fact.trained}
    tested = {one.text for one in world.questions(world.of_kind("trained"))}
    assert not tested & set(corpus.column("text"))


def test_a_share_of_the_sentences_is_language(corpus):
    plain = [sentence for sentence in corpus if not sentence.label]
    assert len(plain) / len(corpus) == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("edited", [False, True])
def test_each_question_is_answered_by_exactly_its_passage(world, edited):
    passages = world.passages(edited)
    kinds = KNOWN if not edited else (*KNOWN, "later")
    for fact in world.of_kind(*kinds):
        name, answer = " ".join(world.names[fact.entity]), world.answer(fact, edited)
        holding = [number for number, row in enumerate(passages) if fact.number in row["facts"]]
        assert holding == [world.gold(fact, edited)]
        assert says(passages[holding[0]]["text"], name, answer)
    for fact in world.of_kind("withheld") + ([] if edited else world.of_kind("later")):
        assert world.gold(fact) == -1
        assert not any(fact.number in row["facts"] for row in passages)


def test_no_sentence_of_a_passage_tells_a_withheld_fact(world):
    for fact in world.of_kind("withheld"):
        name, answer = " ".join(world.names[fact.entity]), world.answer(fact)
        assert not any(says(row["text"], name, answer) for row in world.passages())


def test_the_edited_index_changes_only_what_changed(world):
    before, after = world.passages(), world.passages(edited=True)
    changed = {world.gold(fact) for fact in world.of_kind("changed")}
    assert {number for number, row in enumerate(before) if row != after[number]} == changed
    later = {fact.number for fact in world.of_kind("later")}
    assert later
    assert {number for row in after[len(before) :] for number in row["facts"]} == later
    assert all(fact.edited != fact.object for fact in world.of_kind("changed"))


def test_query_and_passage_share_the_name_but_not_the_word_of_the_relation(world):
    passages = world.passages()
    for fact in world.of_kind("held out"):
        passage = set(passages[world.gold(fact)]["text"].split())
        for question in world.questions([fact]):
            words = dict(zip(question.words, question.roles, strict=True))
            assert {word for word, role in words.items() if role == "subject"} <= passage
            assert not {word for word, role in words.items() if role == "relation"} & passage


def test_the_same_wording_shares_the_word_too():
    world = generate_facts(FactConfig(entities=20, wording="same"), seed=0)
    synonyms = {synonym for one in world.questions(world.facts, "train") for synonym in [one.synonym]}
    assert synonyms == {0, 1}


def test_a_conflict_passage_differs_in_one_object(world):
    for fact in world.of_kind("trained")[:20]:
        gold, conflict = world.passages()[world.gold(fact)], world.conflict_passage(fact)
        differing = [a != b for a, b in zip(gold["text"].split(), conflict["text"].split(), strict=True)]
        assert 1 <= sum(differing) <= 2
        assert conflict["facts"] == gold["facts"]


def test_distractors_name_the_entity_and_hold_other_facts():
    world = generate_facts(FactConfig(entities=20), seed=0)
    passages = world.passages()
    for fact in world.of_kind("trained")[:10]:
        rows = [passages[number] for number in world.distractors(fact)]
        assert rows
        assert all(row["entity"] == " ".join(world.names[fact.entity]) for row in rows)
        assert not any(fact.number in row["facts"] for row in rows)


def test_passages_of_pairs_hold_one_relation_of_two_entities():
    world = generate_facts(FactConfig(entities=40, passages="pairs"), seed=0)
    for row in world.passages():
        facts = [world.facts[number] for number in row["facts"]]
        assert len({fact.relation for fact in facts}) == 1
        assert len({fact.entity for fact in facts}) == len(facts) <= 2


def test_every_word_is_one_token_and_has_one_role(world, corpus):
    tokenizer = world.tokenizer()
    words = world.words.vocabulary()
    assert len(set(words)) == len(words)
    meaning = set(words) - set(world.words.function)
    assert not meaning & {word for sentence in corpus if not sentence.label for word in sentence.words}
    assert [tokenizer(word, add_special_tokens=False).input_ids for word in words] == [
        [tokenizer.convert_tokens_to_ids(word)] for word in words
    ]
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]


def test_a_masked_question_hides_each_word_of_the_object(world):
    for question in world.questions(world.of_kind("trained")[:30]):
        assert question.masked().split().count("[MASK]") == len(question.answer.split())
        assert question.answer in question.text


def test_more_relations_and_objects_than_listed_get_invented_words():
    world = generate_facts(FactConfig(entities=50, relations=12, objects=30, given=40, family=40), seed=0)
    words = world.words.vocabulary()
    assert len(set(words)) == len(words)
    assert world.config.choices(9) == 30
    assert world.config.choices(10) == 144


def test_the_corpus_has_a_name():
    assert load_corpus("facts:20").digest == fact_corpus(generate_facts(FactConfig(entities=20))).digest


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"entities": 2000}, "1,024"),
        ({"relations": 7}, "even"),
        ({"objects": 1}, "objects"),
        ({"held_out": 0.7, "withheld": 0.7}, "together"),
        ({"language": 1.0}, "language"),
        ({"held_out": 1.5}, "from 0 to 1"),
        ({"weights": (0, 1)}, "weights"),
        ({"entities": 2, "relations": 2, "withheld": 1.0, "held_out": 0.0}, "training fact"),
    ],
)
def test_settings_beyond_their_bounds_are_refused(settings, told):
    with pytest.raises(UserError, match=told):
        generate_facts(FactConfig(**settings))
