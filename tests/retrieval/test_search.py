"""Both indexes against explicit scores, and what they share: ties, exclusions, too few passages."""

import math
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.retrieval import NULL, DenseIndex, LexicalIndex, bm25_scores, candidates

needs_bm25 = pytest.mark.skipif(find_spec("bm25s") is None, reason="needs bm25s")
BACKENDS = ["torch", pytest.param("faiss", marks=pytest.mark.skipif(find_spec("faiss") is None, reason="needs faiss"))]
PASSAGES = [
    "ada lund works as a baker",
    "ada lund lives in oslo",
    "the baker ben lund lives in rome",
    "ben roth works as a nurse in rome rome",
]


def terms(*texts):
    return [text.split() for text in texts]


def by_formula(query, passages, k1, b):
    counts = [Counter(one) for one in passages]
    mean, num = sum(map(len, passages)) / len(passages), len(passages)
    scores = []
    for one, passage in zip(counts, passages, strict=True):
        score = 0.0
        for term in query:
            df = sum(term in other for other in counts)
            idf = math.log(1 + (num - df + 0.5) / (df + 0.5))
            score += idf * one[term] / (one[term] + k1 * (1 - b + b * len(passage) / mean)) if df else 0.0
        scores.append(score)
    return scores


@needs_bm25
@pytest.mark.parametrize(
    ("query", "settings", "wanted"),
    [
        ("ada lund baker", {}, [0.733882, 0.475391, 0.413045, 0]),
        ("lives in rome", {}, [0, 0.475391, 0.685758, 0.481814]),
        ("ben unicorn", {}, [0, 0, 0.272714, 0.241095]),
        ("rome rome", {}, [0, 0, 0.545427, 0.715507]),
        ("ada lund baker", {"k1": 0.9, "b": 0.4}, [0.937080, 0.581082, 0.548688, 0]),
    ],
)
def test_reference_bm25(query, settings, wanted):
    assert bm25_scores(terms(query), terms(*PASSAGES), **settings)[0].tolist() == pytest.approx(wanted, abs=1e-6)
    k1, b = settings.get("k1", 1.5), settings.get("b", 0.75)
    assert by_formula(query.split(), terms(*PASSAGES), k1, b) == pytest.approx(wanted, abs=1e-6)


@needs_bm25
def test_bm25_over_token_ids_agrees_with_the_formula():
    generator = np.random.default_rng(0)
    passages = [generator.integers(0, 30, size=generator.integers(1, 12)).tolist() for _ in range(40)]
    queries = [generator.integers(0, 35, size=4).tolist() for _ in range(10)]
    found = bm25_scores(queries, passages)
    for query, row in zip(queries, found, strict=True):
        assert row.tolist() == pytest.approx(by_formula(query, passages, 1.5, 0.75))


@needs_bm25
def test_a_query_without_a_known_term_finds_nothing():
    found = LexicalIndex(terms(*PASSAGES)).search([[], ["unicorn"], ["rome"]], 3)
    assert found.ids[:2].tolist() == [[-1] * 3] * 2
    assert (found.scores[:2] == -np.inf).all()
    assert found.ids[2].tolist() == [3, 2, -1]  # only those that share a term


@needs_bm25
def test_lexical_ties_go_to_the_lower_id():
    index = LexicalIndex(terms(*["x a", "y a", "z a", "w b"] * 5))
    found = index.search([["a"]], 4, exclude=[{1}])
    assert found.ids[0].tolist() == [0, 2, 4, 5]


def explicit(vectors, query, k, excluded):
    scores = [(-float(np.dot(vector, query)), id) for id, vector in enumerate(vectors) if id not in excluded]
    return [id for _, id in sorted(scores)[:k]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [7, 10_000])
def test_dense_search_is_exact(backend, block, monkeypatch):
    monkeypatch.setattr("infoflow.subjects.retrieval.models._dense_index._BLOCK", block)
    generator = np.random.default_rng(0)
    vectors = generator.integers(-3, 4, size=(50, 4)).astype(np.float32)  # many exact ties
    queries = generator.integers(-3, 4, size=(20, 4)).astype(np.float32)
    exclude = [set(generator.integers(0, 50, size=3).tolist()) for _ in queries]
    index = DenseIndex(vectors, backend=backend)
    for k in (1, 5, 60):
        found = index.search(torch.from_numpy(queries), k, exclude)
        for row, query in enumerate(queries):
            wanted = explicit(vectors, query, k, exclude[row])
            assert found.ids[row].tolist() == wanted + [-1] * (k - len(wanted))
            assert found.scores[row, : len(wanted)].tolist() == [float(vectors[id] @ query) for id in wanted]
            assert (found.scores[row, len(wanted) :] == -np.inf).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_equal_vectors_come_by_id(backend):
    index = DenseIndex(np.ones((100, 3), dtype=np.float32), backend=backend)
    assert index.search(np.ones((1, 3), dtype=np.float32), 5).ids.tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_precisions_are_taken(dtype):
    found = DenseIndex(np.eye(3, dtype=dtype)).search(np.eye(3, dtype=dtype), 1)
    assert found.ids.ravel().tolist() == [0, 1, 2]
    assert found.scores.dtype == (np.float64 if dtype is np.float64 else np.float32)


def test_the_inner_product_decides_and_not_the_distance():
    found = DenseIndex(np.array([[1.0, 0], [3, 3], [0, 1]])).search(np.array([[1, 0.1]]), 3)
    assert found.ids[0].tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: DenseIndex(np.empty((0, 3))),
        lambda: DenseIndex(np.array([[np.nan, 1]])),
        lambda: DenseIndex(np.ones(3)),
        lambda: DenseIndex(np.ones((2, 3))).search(np.ones((1, 2)), 1),
        lambda: DenseIndex(np.ones((2, 3))).search(np.array([[np.inf, 1, 1]]), 1),
        lambda: DenseIndex(np.ones((2, 3))).search(np.ones((1, 3)), 1, exclude=[]),
    ],
)
def test_dense_bad_input(make):
    with pytest.raises(UserError):
        make()


# -- candidates --------------------------------------------------------------------------------------------------------


def search_of(vectors, query):
    index = DenseIndex(np.asarray(vectors, dtype=np.float64))
    return lambda k, exclude: index.search(np.asarray([query], dtype=np.float64), k, exclude)


def test_candidates_leave_out_copies_and_keep_the_lowest_id():
    search = search_of([[5], [5], [5], [4], [3]], [1])
    found = candidates(search, 3, [set()], np.array([7, 7, 7, 8, 9]))
    assert found.ids.tolist() == [[0, 3, 4]]


def test_an_excluded_passage_never_comes_back():
    search = search_of([[5], [4], [3]], [1])
    found = candidates(search, 3, [{0, 1}], np.array([1, 2, 3]))
    assert found.ids.tolist() == [[2, NULL, NULL]]
    assert found.scores[0, 1:].tolist() == [-np.inf, -np.inf]


def test_no_passage_is_left_when_all_are_excluded():
    found = candidates(search_of([[5], [4]], [1]), 2, [{0, 1}], np.array([1, 2]))
    assert found.ids.tolist() == [[NULL, NULL]]
