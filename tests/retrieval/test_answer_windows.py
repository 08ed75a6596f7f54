"""Passages longer than what is read: their answers stay, whatever the tokenizer and the room."""

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import tiny_arm, tiny_data, tiny_library, tiny_world

from infoflow.foundation import UserError
from infoflow.retrieval import Library, Passages, bm25_scores


def long_library(answers=True, place=300):
    """Passages of the world's words, each with its own object far behind what a reader holds."""
    world, tokenizer, _ = tiny_world()
    filler, objects, texts = "the of is", [], []
    for passage in world.passages():
        fact = world.facts[passage["facts"][0]]
        objects.append(world.answer(fact))
        texts.append(f"{' '.join([filler] * (place // 3))} {objects[-1]} {' '.join([filler] * 40)}")
    known = {id: [one] for id, one in enumerate(objects)} if answers else None
    return Library(Passages.from_rows(texts), tokenizer, answers=known), objects, tokenizer


def test_windows_hold_the_answer_wherever_it_stands() -> None:
    _, tokenizer, _ = tiny_world()
    words = [word for word in tokenizer.get_vocab() if word.isalpha()][:50]
    places = [(start, min(start + size, 50)) for start in range(50) for size in (1, 3, 8)]
    known = {id: [" ".join(words[start:end])] for id, (start, end) in enumerate(places)}
    library = Library(Passages.from_rows([" ".join(words)] * len(places)), tokenizer, answers=known)
    at = {token: place for place, token in enumerate(library.body(0).tolist())}
    assert len(at) == 50
    for id, (start, end) in enumerate(places):
        for room in (5, 12, 49, 50, 80):
            found = [at[token] for token in library.body_within(id, room).tolist()]
            assert len(found) == min(room, 50)
            assert (np.diff(found) == 1).all()
            assert {*range(start, min(end, start + room))} <= {*found}
            if end <= room:
                assert found[0] == 0, "nothing is moved without need"
        assert library.body_within(id, 0).tolist() == library.body_within(id, -2).tolist() == []


def test_a_passage_is_read_around_its_answer() -> None:
    library, objects, tokenizer = long_library()
    cut, _, _ = long_library(answers=False)
    assert library.num_unanswered == 0
    assert library.num_cut == len(library)
    for id, name in enumerate(objects[:10]):
        for found, holds in ((library, True), (cut, False)):
            tokens, segments = found.encoded(id)
            assert len(tokens) == len(segments) == 128
            assert (name in tokenizer.decode(tokens)) == holds
        assert name in tokenizer.decode(library.body_within(id, 20))


def test_a_reader_sees_the_answer_too() -> None:
    objective, model = tiny_arm("read-gold")
    model.passage_library, objects, tokenizer = long_library()
    batch = tiny_data().batch(objective, np.arange(8), ("test",), 0)
    gold = [int(one) for one in batch["gold"] if one >= 0][:3]
    queries = [np.array([1, *range(5, 25), 2])] * len(gold)
    tokens, real, _ = model._pairs(queries, np.array([[row, 0] for row in range(len(gold))]), np.array(gold)[:, None])
    limit = model.config.max_position_embeddings
    for row, id in enumerate(gold):
        own = tokens[row][real[row] == 1]
        assert len(own) <= limit
        assert objects[id] in tokenizer.decode(own)
    assert torch.isfinite(objective.loss(model, batch, batch.noise)["read-gold"].total)


def test_words_are_searched_in_the_whole_passage() -> None:
    """BM25 reads passages whole, so that what is cut away still finds them."""
    library, objects, tokenizer = long_library()
    asked = np.array(tokenizer(objects[0], add_special_tokens=False).input_ids)
    scores = bm25_scores([asked.tolist()], [library.body(id).tolist() for id in range(len(library))])[0]
    assert library.by_words([asked], 1, [[]]).ids[0, 0] == np.flatnonzero(scores == scores.max())[0]


def test_short_passages_and_unknown_answers_are_read_as_before() -> None:
    world, tokenizer, _ = tiny_world()
    plain = tiny_library()
    known = Library(plain.passages, tokenizer, answers={0: ["no such word"], 1: [world.answer(world.facts[0])], 2: []})
    assert known.num_unanswered >= 2
    assert all((plain.encoded(id)[0] == known.encoded(id)[0]).all() for id in range(len(plain)))


def test_answers_are_whole_words_of_any_case_from_the_first_to_the_last() -> None:
    _, tokenizer, _ = tiny_world()
    words = [word for word in tokenizer.get_vocab() if word.isalpha() and len(word) > 2][:4]
    text = f"{words[0]}s {words[1]} {words[0]} {words[2]} {words[3]}"
    known = {0: [words[0].upper(), words[2]], 1: ["", "  "]}
    library = Library(Passages.from_rows([text] * 2), tokenizer, answers=known)
    assert library.body_within(0, 2).tolist() == library.body(0)[2:4].tolist()
    assert library.body_within(1, 2).tolist() == library.body(1)[:2].tolist()
    assert library.num_unanswered == 1


def test_bad_answers_are_told(monkeypatch) -> None:
    _, tokenizer, _ = tiny_world()
    passages = Passages.from_rows(["a b", "c"])
    for id in (2, -1):
        with pytest.raises(UserError, match=f"Answers must refer to passages 0 to 1. Got passage {id}"):
            Library(passages, tokenizer, answers={id: ["a"]})
    monkeypatch.setattr(type(tokenizer), "is_fast", False)
    with pytest.raises(UserError, match="needs a fast tokenizer"):
        Library(passages, tokenizer, answers={0: ["a"]})


def test_the_digest_knows_where_answers_stand():
    """A training that goes on, or a stored index, must not take passages that are cut elsewhere for its own."""
    known, _, tokenizer = long_library()
    without = Library(known.passages, tokenizer)
    assert without.digest == known.passages.digest == Library(known.passages, tokenizer, answers={}).digest
    assert known.digest != without.digest
    assert known.digest == long_library()[0].digest
    assert known.digest != long_library(place=280)[0].digest
