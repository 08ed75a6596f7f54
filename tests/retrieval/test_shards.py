"""Shards together find what one index of everything finds, to the last bit: in one process, and over several."""

import json
import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.forked import run_together

from infoflow.foundation import UserError
from infoflow.retrieval import (
    HNSW,
    WORD_TERMS,
    DenseIndex,
    GroupIndex,
    LexicalIndex,
    Passages,
    Shard,
    ShardedIndex,
    TermStatistics,
    build_passage_index,
    open_passage_index,
    open_shard,
    save_index,
    terms_of,
)

needs_bm25 = pytest.mark.skipif(find_spec("bm25s") is None, reason="needs bm25s")
needs_faiss = pytest.mark.skipif(find_spec("faiss") is None, reason="needs faiss")
WORDS = ["ada", "ben", "cleo", "baker", "nurse", "oslo", "rome", "lives", "works", "in", "as", "a"]


def texts(num=90, seed=0):
    """Passages of few words, so that scores are often equal."""
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, 7))) for _ in range(num)]


def same(one, other):
    np.testing.assert_array_equal(one.ids, other.ids)
    assert one.scores.dtype == other.scores.dtype
    assert one.scores.tobytes() == other.scores.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("of", [2, 3, 7])
def test_dense_shards_find_what_the_whole_finds(dtype, of):
    generator = np.random.default_rng(0)
    vectors, queries = (generator.standard_normal((num, 24)).astype(dtype) for num in (400, 30))
    vectors[200:] = vectors[:200]  # exact copies, in other shards
    exclude = [set(generator.integers(0, 400, 9).tolist()) for _ in queries]
    whole = DenseIndex(vectors)
    shards = ShardedIndex([DenseIndex(vectors[number::of]) for number in range(of)])
    assert len(shards) == 400
    for k in (1, 10, 450):
        same(shards.search(queries, k, exclude), whole.search(queries, k, exclude))
        for start, end in ((0, 1), (3, 12)):  # a score does not depend on what else is asked
            alone = shards.search(queries[start:end], k, exclude[start:end])
            np.testing.assert_array_equal(alone.scores, whole.search(queries, k, exclude).scores[start:end])
    assert shards.search(queries[:0], 3).ids.shape == (0, 3)


@needs_bm25
@pytest.mark.parametrize("of", [2, 5])
def test_lexical_shards_know_the_words_of_all(of):
    passages, queries = [one.split() for one in texts()], [one.split() for one in texts(20, seed=1)] + [["unicorn"], []]
    statistics = TermStatistics.of(passages)
    whole = LexicalIndex(passages, k1=1.2, b=0.6)
    shards = [LexicalIndex(passages[number::of], k1=1.2, b=0.6, statistics=statistics) for number in range(of)]
    alone = [LexicalIndex(passages[number::of], k1=1.2, b=0.6) for number in range(of)]
    exclude = [{row, row + 1, 2 * row} for row in range(len(queries))]
    for k in (1, 8, 100):
        same(ShardedIndex(shards).search(queries, k, exclude), whole.search(queries, k, exclude))
    assert (ShardedIndex(alone).search(queries, 8).ids != whole.search(queries, 8).ids).any()


@needs_bm25
def test_statistics_of_the_passages_themselves_change_nothing():
    passages = [one.split() for one in texts()]
    plain, weighed = LexicalIndex(passages), LexicalIndex(passages, statistics=TermStatistics.of(iter(passages)))
    for query in passages[:9]:
        assert plain.scores(query).tobytes() == weighed.scores(query).tobytes()


def test_joined_passages_are_those_of_one_store(tmp_path):
    rows = [{"title": f"t{row}", "text": text, "facts": [row]} for row, text in enumerate([*texts(10), " ", "x", "x"])]
    whole = Passages.from_rows(rows)
    shards = [Passages.build(iter(rows), tmp_path / str(number), (number, 5)) for number in range(5)]
    assert [len(one) for one in shards] == [3, 3, 2, 2, 2]
    assert shards[1].shard == Shard(1, 5, 12, whole.digest)
    assert shards[1].shard.ids(np.array([0, 2, -1])).tolist() == [1, 11, -1]
    joined = Passages.join(shards[::-1])
    assert list(joined) == list(whole)
    assert [joined[id] for id in (0, 4, 11)] == [whole[id] for id in (0, 4, 11)]
    assert list(joined.texts(3)) == list(whole.texts())
    assert (joined.digest, joined.num_empty, joined.num_repeated) == (whole.digest, 1, whole.num_repeated)
    joined.save(tmp_path / "again")
    again = Passages.load(tmp_path / "again")
    assert list(again) == list(whole)
    assert again.dataset["id"][:] == list(range(12))
    assert Passages.build(iter(rows), tmp_path / "all", (0, 1)).shard is None
    with pytest.raises(UserError, match="Shard 12 of 13 has none of 12 passages"):
        Passages.build(iter(rows), tmp_path / "none", (12, 13))


def test_shards_that_do_not_belong_together_are_refused(tmp_path):
    a, b = (Passages.build(texts(9), tmp_path / f"a{number}", (number, 2)) for number in range(2))
    other = Passages.build(texts(8), tmp_path / "other", (1, 2))
    for shards, told in (
        ([a], "shards 0..1 once. Got 0."),
        ([a, a], "Got 0, 0"),
        ([a, other], "different indexes"),
        ([a, b, Passages.from_rows(["x"])], "1 of 3 that are not shards"),
        ([], "0 of 0"),
    ):
        with pytest.raises(UserError, match=told):
            Passages.join(shards)
    path = tmp_path / "a1" / "passages.json"
    written = json.loads(path.read_text())
    for shard in ({"number": 2}, {"number": 2, "of": 2, "total": 9, "whole": "x"}, [1, 2, 9, "x"], 3):
        path.write_text(json.dumps(written | {"shard": shard}))
        with pytest.raises(UserError, match=r"passages\.json is damaged"):
            Passages.load(tmp_path / "a1")


@needs_bm25
def test_folders_of_shards_open_as_one_index(tmp_path):
    store = Passages.from_rows(texts())
    whole = build_passage_index(store, tmp_path / "whole")
    for number in range(3):
        build_passage_index(store, tmp_path / str(number), shard=(number, 3))
    shards = open_passage_index([tmp_path / name for name in ("2", "0", "1")])
    questions = texts(12, seed=2)
    for origin in (False, True):
        same(shards.search(questions, 10, origin), whole.search(questions, 10, origin))
    assert shards.look_up(questions[:2]).equals(whole.look_up(questions[:2]))
    alone = open_shard(tmp_path / "1")
    assert (len(alone.passages), alone.passages.shard.number) == (30, 1)
    one, two = tmp_path / "1", tmp_path / "0"
    for folders, got in ((one, "1"), ([one], "1"), ([one, two], "0, 1")):
        with pytest.raises(UserError, match=rf"needs each of the shards 0\.\.2 once\. Got {got}\.\n"):
            open_passage_index(folders)
    with pytest.raises(UserError, match="Only shards of an index"):
        open_passage_index([])
    build_passage_index(Passages.from_rows(texts(91)), tmp_path / "0", shard=(0, 3))
    with pytest.raises(UserError, match="different indexes"):
        open_passage_index([tmp_path / name for name in ("0", "1", "2")])
    with pytest.raises(UserError, match="i of n"):
        build_passage_index(store, tmp_path / "no", shard=(3, 3))


@needs_bm25
def test_an_index_that_knows_its_own_shard_alone_is_refused(tmp_path):
    for number in range(2):
        build_passage_index(Passages.from_rows(texts()), tmp_path / str(number), shard=(number, 2))
    passages = Passages.load(tmp_path / "0" / "passages")
    save_index(LexicalIndex(terms_of(passages.texts())), passages, WORD_TERMS, tmp_path / "0" / "index")
    with pytest.raises(UserError, match="other terms"):
        open_passage_index([tmp_path / "0", tmp_path / "1"])


@needs_faiss
def test_approximate_shards_are_merged_by_exact_scores():
    generator = np.random.default_rng(0)
    vectors, queries = (generator.standard_normal((num, 8)).astype(np.float32) for num in (300, 10))
    shards = ShardedIndex([DenseIndex(vectors[number::2], HNSW()) for number in range(2)])
    same(shards.search(queries, 5), DenseIndex(vectors).search(queries, 5))  # so wide a search misses none of so few


def test_there_must_be_a_shard_and_a_group():
    with pytest.raises(UserError, match="at least one shard"):
        ShardedIndex([])
    with pytest.raises(UserError, match=r"infoflow\.flow\.processes"):
        GroupIndex(DenseIndex(np.eye(2)), Shard(0, 1, 2, "x"))


# -- over several processes --------------------------------------------------------------------------------------------

SCRIPT = """
import pickle
import sys
from pathlib import Path

import numpy as np
from infoflow.flow import processes
from infoflow.foundation import UserError
from infoflow.retrieval import DenseIndex, GroupIndex, LexicalIndex, Shard, TermStatistics

rank, size = processes()
given = pickle.loads((Path(sys.argv[1]) / "given").read_bytes())
part, shard = slice(rank, None, size), Shard(rank, size, len(given["vectors"]), "whole")
own = given["rows"][rank]
dense = GroupIndex(DenseIndex(given["vectors"][part]), shard)
statistics = TermStatistics.of(given["terms"])
lexical = GroupIndex(LexicalIndex(given["terms"][part], statistics=statistics), shard)
found = {"length": len(dense)}
found["dense"] = dense.search(given["queries"][own], 9, [given["exclude"][row] for row in own])
found["lexical"] = lexical.search([given["asked"][row] for row in own], 9)
found["nothing"] = dense.search(given["queries"][: rank * 2], 4)
found["told"] = []
for k, width in ((3 + rank, 8), (3, 8 - rank), (rank, 8)):
    try:
        dense.search(np.ones((1, width), dtype=np.float32), k)
    except UserError as error:
        found["told"].append(str(error))
try:
    GroupIndex(DenseIndex(given["vectors"]), Shard(0, size, 5, "whole"))
except UserError as error:
    found["told"].append(str(error))
(Path(sys.argv[1]) / str(rank)).write_bytes(pickle.dumps(found))
"""


@pytest.mark.slow
@needs_bm25
def test_two_processes_find_what_one_finds(tmp_path: Path):
    generator = np.random.default_rng(0)
    vectors, queries = (generator.integers(-2, 3, (num, 8)).astype(np.float32) for num in (90, 11))
    given = {"vectors": vectors, "queries": queries, "rows": [list(range(7)), list(range(7, 11))]}
    given["terms"], given["asked"] = ([one.split() for one in texts(num, seed=num)] for num in (90, 11))
    given["exclude"] = [set(generator.integers(0, 90, 5).tolist()) for _ in queries]
    (tmp_path / "given").write_bytes(pickle.dumps(given))
    (tmp_path / "script.py").write_text(SCRIPT)
    run_together(tmp_path / "script.py", tmp_path)
    dense = DenseIndex(vectors).search(queries, 9, given["exclude"])
    lexical = LexicalIndex(given["terms"]).search(given["asked"], 9)
    found = [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(2)]
    for rank, rows in enumerate(given["rows"]):
        assert found[rank]["length"] == 90
        for name, whole in (("dense", dense), ("lexical", lexical)):
            np.testing.assert_array_equal(found[rank][name].ids, whole.ids[rows])
            assert found[rank][name].scores.tobytes() == whole.scores[rows].tobytes()
        same(found[rank]["nothing"], DenseIndex(vectors).search(queries[: rank * 2], 4))
        told = found[rank]["told"]
        assert [
            any(part in text for text in told) for part in ("same k. Got 3, 4", "width of the passages, 8", "k must be")
        ] == [True] * 3
        assert "each once. Got 0 of 2, 0 of 2" in told[3]
