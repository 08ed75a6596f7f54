"""Static neighbours beside those in context: which words, which neighbours, how far occurrences agree."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import Corpus, Vocabulary, load_corpus, train_tokenizer
from infoflow.flow import measure
from infoflow.foundation import UserError, stream
from infoflow.models import load_model, tap
from infoflow.representations import (
    IdentityNeighbours,
    WordNeighbours,
    disagreement,
    nearest_of_other_words,
    overlap,
    static_vectors,
    two_groups,
)

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)


def cosine(a, b) -> float:
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def explicit_nearest(states, word, sentence, query, k):
    """Best occurrence of every other word in other sentences, then the best words."""
    best = {}
    for other in range(len(states)):
        if word[other] == word[query] or sentence[other] == sentence[query]:
            continue
        value = cosine(states[query], states[other])
        if word[other] not in best or value > best[word[other]][0]:
            best[word[other]] = (value, other)
    return sorted(best.values(), key=lambda each: -each[0])[:k]


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 10), st.integers(1, 6), st.integers(0, 10**6))
def test_neighbours_are_those_of_an_explicit_search(size, words, sentences, k, seed) -> None:
    generator = stream("nearest", seed)
    states = generator.normal(size=(size, 5)).astype(np.float32)
    word, sentence = generator.integers(words, size=size), generator.integers(sentences, size=size)
    queries = np.arange(0, size, 3)
    found, values = nearest_of_other_words(states, word, sentence, queries, k)
    for row, query in enumerate(queries.tolist()):
        expected = explicit_nearest(states, word, sentence, query, k)
        assert found[row][found[row] >= 0].tolist() == [other for _, other in expected]
        np.testing.assert_allclose(values[row][: len(expected)], [value for value, _ in expected], atol=1e-9)
        assert np.isnan(values[row][len(expected) :]).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 10**6))
def test_overlap_is_that_of_sets(queries, k, seed) -> None:
    words = stream("overlap", seed).integers(-1, 9, size=(queries, k))
    sets = [set(row.tolist()) - {-1} for row in words]
    found = overlap(words)
    for i, j in itertools.product(range(queries), repeat=2):
        either = len(sets[i] | sets[j])
        assert found[i, j] == pytest.approx(len(sets[i] & sets[j]) / either if either else 0.0)
    pairs = [(i, j) for i, j in itertools.product(range(queries), repeat=2) if i != j]
    chosen = np.ones((queries, queries), dtype=bool)
    if pairs:
        assert disagreement(found, chosen) == pytest.approx(1 - np.mean([found[i, j] for i, j in pairs]))
    else:
        assert np.isnan(disagreement(found, chosen))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_groups_are_those_of_the_two_farthest(size, seed) -> None:
    states = stream("groups", seed).normal(size=(size, 4))
    pairs = itertools.combinations(range(size), 2)
    one, other = min(pairs, key=lambda pair: cosine(states[pair[0]], states[pair[1]]))
    nearer = [int(cosine(states[i], states[other]) > cosine(states[i], states[one])) for i in range(size)]
    assert two_groups(states).tolist() == [each ^ nearer[0] for each in nearer]


def test_two_senses_fall_into_two_groups_with_other_neighbours() -> None:
    """A word stands near the first theme in half of its occurrences, near the second in the others."""
    generator = np.random.default_rng(0)
    themes = np.eye(8)[:2] * 5
    sense = np.array([0, 1, 1, 0, 1, 0])
    states = [themes[each] + generator.normal(size=8) for each in sense]
    words = [0] * 6
    for word in range(1, 21):  # ten words of each theme, five occurrences each
        states += [themes[word % 2] + generator.normal(size=8) for _ in range(5)]
        words += [word] * 5
    states, words = np.array(states), np.array(words)
    assert two_groups(states[:6]).tolist() == sense.tolist()
    nearest, _ = nearest_of_other_words(states, words, np.arange(len(words)), np.arange(6), 5)
    assert ((words[nearest] % 2) == sense[:, None]).all()
    overlaps = overlap(words[nearest])
    same = sense[:, None] == sense
    assert disagreement(overlaps, ~same) == 1.0 > disagreement(overlaps, same)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus("grammar:300")


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return train_tokenizer(corpus.column("text"), 200)


def loaded(layout: str, tokenizer):
    module = build("bert", layout, SHAPE, Vocabulary.from_tokenizer(tokenizer))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3)
    return load_model(module, tokenizer=tokenizer, device="cpu")


@pytest.fixture(scope="module")
def model(tokenizer):
    return loaded("encoder", tokenizer)


@pytest.fixture(scope="module")
def table(model, corpus):
    wanted = WordNeighbours(words=5, occurrences=4, k=3, pool=200)
    return measure(model, corpus, [wanted])["word_neighbours"]


def test_static_neighbours_are_those_of_the_embedding_matrix(table, model, tokenizer) -> None:
    static = table[table["occurrence"] == -1]
    assert set(static["layer"]) == {0}
    assert static["word"].nunique() == 5
    matrix = model.module.get_input_embeddings().weight.detach().numpy()
    assert np.array_equal(static_vectors(model), matrix)

    def id_of(word: str) -> int:
        (token,) = tokenizer(word, add_special_tokens=False)["input_ids"]
        return token

    for word, own in static.groupby("word"):
        values = [cosine(matrix[id_of(word)], matrix[id_of(near)]) for near in own["neighbour"]]
        assert own["cosine"].tolist() == pytest.approx(values, abs=1e-6)
        assert own["rank"].tolist() == [0, 1, 2]
        assert word not in set(own["neighbour"])
        others = [cosine(matrix[id_of(word)], matrix[id_of(other)]) for other in set(static["neighbour"]) - {word}]
        assert values == sorted(values, reverse=True)
        assert max(others) == pytest.approx(values[0], abs=1e-6)


def test_neighbours_in_context_are_near_and_their_places_are_right(table, model, tokenizer) -> None:
    """Each cosine again, from the two sentences read one by one."""
    context = table[table["occurrence"] >= 0]
    assert set(context["layer"]) == {1, 2}
    assert (context["neighbour"] != context["word"]).all()
    assert (context["neighbour_sentence"] != context["sentence"]).all()
    for row in context.iloc[::7].itertuples():
        assert row.text[row.begin : row.end].lower() == row.word
        assert row.neighbour_text[row.neighbour_begin : row.neighbour_end].lower() == row.neighbour
        ends = [
            state_of(model, tokenizer, row.text, row.begin, row.layer),
            state_of(model, tokenizer, row.neighbour_text, row.neighbour_begin, row.layer),
        ]
        assert row.cosine == pytest.approx(cosine(*ends), abs=1e-4)


def state_of(model, tokenizer, text, start, layer):
    encoded = tokenizer(text, return_tensors="pt")
    at = encoded.char_to_token(0, start)
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(input_ids=encoded["input_ids"])
    return seen.hidden["encoder"][layer][0, at].numpy()


def test_disagreement_is_one_number_of_a_word_and_layer(table) -> None:
    context = table[table["occurrence"] >= 0]
    for (_, word), own in context.groupby(["layer", "word"]):
        assert own["disagreement"].nunique() == own["baseline"].nunique() == 1
        sets = [set(each["neighbour"]) for _, each in own.groupby("occurrence")]
        overlaps = [len(a & b) / len(a | b) for a, b in itertools.combinations(sets, 2)]
        assert own["disagreement"].iloc[0] == pytest.approx(1 - np.mean(overlaps)), word
        assert own.loc[own["occurrence"] == 0, "group"].eq(0).all()
        assert set(own["group"]) == {0, 1}
    assert context["disagreement"].between(0, 1).all()
    assert context["baseline"].between(0, 1).all()


def test_two_models_are_asked_about_the_same_occurrences(table, corpus, tokenizer) -> None:
    wanted = WordNeighbours(words=5, occurrences=4, k=3, pool=200)
    other = measure(loaded("decoder", tokenizer), corpus, [wanted])["word_neighbours"]
    keys = ["layer", "word", "occurrence", "sentence", "begin"]
    asked = [set(frame[frame["occurrence"] >= 0][keys].itertuples(index=False, name=None)) for frame in (table, other)]
    assert asked[0] == asked[1]
    assert not table["neighbour"].equals(other["neighbour"])


def test_static_vectors_have_static_neighbours_and_nothing_else(corpus, tokenizer) -> None:
    static = loaded("static", tokenizer)
    found = measure(static, corpus, [WordNeighbours(words=5, k=3), IdentityNeighbours()])
    assert set(found) == {"word_neighbours"}
    assert set(found["word_neighbours"]["layer"]) == {0}
    assert len(found["word_neighbours"]) == 15
    with pytest.raises(UserError, match="has no layers"):
        measure(static, corpus, [IdentityNeighbours()])


def test_words_can_be_named_and_those_that_are_not_there_are_left_out(model, corpus) -> None:
    found = measure(model, corpus, [WordNeighbours(named=("house", "zebra"), occurrences=3)])["word_neighbours"]
    assert set(found["word"]) == {"house"}
    assert found.loc[found["layer"] == 2, "occurrence"].nunique() == 3
    with pytest.raises(UserError, match="no word"):
        measure(model, corpus, [WordNeighbours(named=("zebra",))])
