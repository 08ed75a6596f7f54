"""Approximate search: candidates may be others, scores and order are exact, and how many are missed is told."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from infoflow.foundation import UserError, file_digest
from infoflow.retrieval import HNSW, IVFPQ, DenseIndex, Passages, load_index, save_index, search_recall

pytestmark = pytest.mark.skipif(find_spec("faiss") is None, reason="needs faiss")
SMALL = [HNSW(links=4, build_width=8, search_width=4), IVFPQ(lists=8, probes=1, parts=2, bits=4, candidates=2)]
ids = [how.name for how in SMALL]


def drawn(num=700, width=8, dtype=np.float32, seed=0):
    """Vectors of few different values, so that many scores are equal, and some queries."""
    generator = np.random.default_rng(seed)
    return (generator.integers(-2, 3, size=(size, width)).astype(dtype) for size in (num, 30))


def explicit(vectors, query, k, excluded=()):
    scores = [(-float(np.dot(vector, query)), id) for id, vector in enumerate(vectors) if id not in excluded]
    return [id for _, id in sorted(scores)[:k]]


@pytest.mark.parametrize("how", SMALL, ids=ids)
def test_scores_and_order_are_exact_whoever_was_found(how):
    vectors, queries = drawn()
    generator = np.random.default_rng(3)
    exclude = [set(explicit(vectors, query, int(generator.integers(0, 9)))) for query in queries]
    index = DenseIndex(vectors, how)
    for k in (1, 10):
        found = index.search(queries, k, exclude)
        for query, row, scores, out in zip(queries, *found, exclude, strict=True):
            assert scores.tolist() == [float(vectors[id] @ query) for id in row]
            order = [(-score, id) for score, id in zip(scores, row, strict=True)]
            assert order == sorted(order)
            assert len(set(row.tolist())) == k
            assert not out & set(row.tolist())


@pytest.mark.parametrize("how", SMALL, ids=ids)
def test_never_fewer_than_there_are(how):
    vectors, queries = drawn()
    found = DenseIndex(vectors, how).search(queries[:2], 710, exclude=[{0}, set(range(699))])
    assert found.ids[0].tolist() == [*explicit(vectors, queries[0], 710, {0}), *[-1] * 11]
    assert found.ids[1].tolist() == [699, *[-1] * 709]
    assert (found.scores[1, 1:] == -np.inf).all()


@pytest.mark.parametrize("how", SMALL, ids=ids)
def test_recall_is_that_of_an_explicit_count_and_rises_with_effort(how):
    generator = np.random.default_rng(0)
    vectors, queries = (generator.standard_normal((num, 16)).astype(np.float32) for num in (900, 40))
    index = DenseIndex(vectors, how)
    rows = index.search(queries, 10).ids
    wanted = np.mean(
        [len({*row} & {*explicit(vectors, query, 10)}) / 10 for row, query in zip(rows, queries, strict=True)]
    )
    told = search_recall(index, queries)
    assert (told.k, told.num_queries, told.queries) == (10, 40, "questions")
    assert told.recall == pytest.approx(wanted)
    assert told.recall < 0.95
    more = HNSW(search_width=400) if how.name == "hnsw" else IVFPQ(lists=8, probes=8, parts=4, bits=4, candidates=60)
    assert search_recall(DenseIndex(vectors, more), queries).recall > 0.99
    assert search_recall(DenseIndex(vectors), queries).recall == 1


@pytest.mark.parametrize("how", SMALL, ids=ids)
def test_the_same_index_each_time_and_from_disk(tmp_path, how):
    vectors, queries = drawn()
    passages = Passages.from_rows(f"passage {number}" for number in range(700))
    for name in ("a", "b"):
        save_index(DenseIndex(vectors, how), passages, "e", tmp_path / name)
    assert (tmp_path / "a" / "nearest.faiss").read_bytes() == (tmp_path / "b" / "nearest.faiss").read_bytes()
    about = json.loads((tmp_path / "a" / "index.json").read_text())
    stored = load_index(tmp_path / "a", passages, "e")
    assert stored.index.backend == how
    assert stored.recall._asdict() == about["recall"]
    assert (stored.recall.k, stored.recall.num_queries, stored.recall.queries) == (10, 200, "vectors of passages")
    for one, other in zip(stored.index.search(queries, 7), DenseIndex(vectors, how).search(queries, 7), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["nearest.faiss", "vectors.safetensors"])
def test_a_flipped_byte_is_refused(tmp_path, name):
    passages = Passages.from_rows(["one", "two", "three"])
    save_index(DenseIndex(np.eye(3, dtype=np.float32), HNSW()), passages, "e", tmp_path / "i")
    path = tmp_path / "i" / name
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # in the vectors of either: faiss reads it without an error
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        load_index(tmp_path / "i", passages)


@pytest.mark.parametrize(
    "change",
    [
        {"approximate": {"kind": "hnsw", "links": 1}},
        {"approximate": {"kind": "nothing"}},
        {"approximate": {"kind": "ivf"}},
        {"approximate": None},
        {"recall": {"k": 10}},
        {"recall": {"k": 10, "num_queries": 3, "queries": "x", "recall": "1"}},
    ],
)
def test_a_description_of_another_index_is_refused(tmp_path, change):
    passages = Passages.from_rows(["one", "two", "three"])
    save_index(DenseIndex(np.eye(3, dtype=np.float32), HNSW()), passages, "e", tmp_path / "i")
    path = tmp_path / "i" / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"damaged|few"):
        load_index(tmp_path / "i", passages)


def test_the_file_of_another_index_is_refused(tmp_path):
    passages = Passages.from_rows(["one", "two", "three"])
    save_index(DenseIndex(np.eye(3, dtype=np.float32), HNSW()), passages, "e", tmp_path / "i")
    save_index(DenseIndex(np.eye(3, 2, dtype=np.float32), HNSW()), passages, "e", tmp_path / "j")
    path = tmp_path / "i" / "nearest.faiss"
    path.write_bytes((tmp_path / "j" / "nearest.faiss").read_bytes())
    about = json.loads((tmp_path / "i" / "index.json").read_text())
    about["files"]["nearest.faiss"] = file_digest(path)
    (tmp_path / "i" / "index.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match="no hnsw index of 3 vectors"):
        load_index(tmp_path / "i", passages)


def test_sizes_follow_the_passages():
    many = IVFPQ().for_vectors(1_000_000, 768)
    assert (many.lists, many.probes, many.parts, many.bits) == (4000, 500, 192, 8)
    few = IVFPQ().for_vectors(9_984, 64)
    assert (few.lists, few.probes, few.parts) == (256, 32, 16)
    assert IVFPQ(bits=4).for_vectors(700, 6).parts == 1
    assert IVFPQ(bits=4, lists=3, probes=9).for_vectors(700, 6).probes == 3


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: IVFPQ().for_vectors(9_983, 64), "at least 9,984 passages.*\n.*exact, or hnsw"),
        (lambda: IVFPQ(bits=4, lists=20).for_vectors(700, 64), "at least 780 passages"),
        (lambda: IVFPQ(bits=4, parts=3).for_vectors(700, 64), "divide the width of the vectors, 64. Got 3"),
        (lambda: DenseIndex(np.ones((9, 4)), IVFPQ()), "Got 9"),
        (lambda: IVFPQ(bits=9), "1 to 8"),
        (lambda: IVFPQ(probes=0), "probes of kind ivf must be a whole number, at least 1. Got 0"),
        (lambda: HNSW(links=1), "links of kind hnsw"),
        (lambda: search_recall(DenseIndex(np.ones((9, 4))), np.ones((0, 4))), "at least one query"),
    ],
)
def test_what_cannot_be_built_is_told(make, told):
    with pytest.raises(UserError, match=told):
        make()
