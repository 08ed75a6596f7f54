"""TREC's files: what comes back is what was written, and tools that sort by score have our order."""

import numpy as np
import pytest

from infoflow.foundation import UserError
from infoflow.retrieval import (
    DenseIndex,
    Found,
    hit_at,
    read_qrels,
    read_run,
    recall_at,
    reciprocal_rank,
    write_qrels,
    write_run,
)

NOTHING = -np.inf
FOUND = Found(
    np.array([[3, 1, 2], [5, -1, -1], [-1, -1, -1]]),
    np.array([[2.5, 1, 1], [7, NOTHING, NOTHING], [NOTHING, NOTHING, NOTHING]]),
)


def trec_eval_order(path):
    """Passages of each query as trec_eval puts them: rank is ignored, scores are in single precision, ties by name."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        query, q0, passage, rank, score, tag = line.split()
        assert (q0, int(rank) > 0, tag != "") == ("Q0", True, True)
        found.setdefault(query, []).append((np.float32(float(score)), passage))
    return {query: [passage for _, passage in sorted(rows, reverse=True)] for query, rows in found.items()}


def test_the_lines_of_a_run(tmp_path):
    write_run(tmp_path / "run", FOUND, ["q1", "q2", "q3"], [f"d{id}" for id in range(6)], tag="bm25")
    lowered = str(np.nextafter(np.float32(1), np.float32(0)))
    assert (tmp_path / "run").read_bytes().decode() == (
        f"q1 Q0 d3 1 2.5 bm25\nq1 Q0 d1 2 1.0 bm25\nq1 Q0 d2 3 {lowered} bm25\nq2 Q0 d5 1 7.0 bm25\n"
    )
    run = read_run(tmp_path / "run")
    assert {query: list(scores) for query, scores in run.items()} == {"q1": ["d3", "d1", "d2"], "q2": ["d5"]}
    assert run["q1"]["d3"] == 2.5


def test_the_lines_of_qrels(tmp_path):
    write_qrels(tmp_path / "qrels", [{2, 0}, {1}], ["a", "b"])
    assert (tmp_path / "qrels").read_text() == "a 0 0 1\na 0 2 1\nb 0 1 1\n"
    assert read_qrels(tmp_path / "qrels") == {"a": {"0": 1, "2": 1}, "b": {"1": 1}}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_other_tools_have_our_order_and_our_numbers(tmp_path, dtype):
    generator = np.random.default_rng(0)
    vectors = generator.integers(-1, 2, size=(60, 3)).astype(dtype) / 3  # few different scores: ties everywhere
    queries = generator.integers(-1, 2, size=(25, 3)).astype(dtype) / 7
    relevant = [set(generator.choice(60, 4, replace=False).tolist()) for _ in queries]
    found = DenseIndex(vectors).search(queries, 20)
    assert any((np.diff(scores) == 0).any() for scores in found.scores)
    write_run(tmp_path / "run", found)
    write_qrels(tmp_path / "qrels", relevant)
    run, qrels = trec_eval_order(tmp_path / "run"), read_qrels(tmp_path / "qrels")
    for query, ids in enumerate(found.ids):
        theirs = [passage in qrels[str(query)] for passage in run[str(query)]]
        assert list(map(int, run[str(query)])) == list(map(int, read_run(tmp_path / "run")[str(query)])) == ids.tolist()
        first = theirs.index(True) + 1 if any(theirs) else np.inf
        assert reciprocal_rank([ids], [relevant[query]]).tolist() == [1 / first]
        assert hit_at([ids], [relevant[query]], 5).tolist() == [float(any(theirs[:5]))]
        assert recall_at([ids], [relevant[query]], 10).tolist() == [sum(theirs[:10]) / len(qrels[str(query)])]


def test_another_implementation_agrees(tmp_path):
    import ir_measures as measures

    generator = np.random.default_rng(1)
    relevant = [set(generator.choice(40, 3, replace=False).tolist()) for _ in range(15)]
    found = DenseIndex(generator.integers(-2, 3, size=(40, 3)).astype(float)).search(np.eye(15, 3), 10)
    write_run(tmp_path / "run", found)
    write_qrels(tmp_path / "qrels", relevant)
    files = measures.read_trec_qrels(str(tmp_path / "qrels")), measures.read_trec_run(str(tmp_path / "run"))
    theirs = measures.calc_aggregate([measures.RR @ 10, measures.Success @ 5, measures.R @ 10], *files)
    assert theirs[measures.RR @ 10] == pytest.approx(reciprocal_rank(found.ids, relevant, 10).mean())
    assert theirs[measures.Success @ 5] == pytest.approx(hit_at(found.ids, relevant, 5).mean())
    assert theirs[measures.R @ 10] == pytest.approx(recall_at(found.ids, relevant, 10).mean())


def test_a_run_of_others_is_read_by_score(tmp_path):
    (tmp_path / "run").write_text("q Q0 a 1 .5 x\n\nq\tQ0\tb 2 2e0 x\nq Q0  c 3 0.5 x\nr Q0 a 0 -1 x\n")
    assert list(read_run(tmp_path / "run")["q"].items()) == [("b", 2.0), ("c", 0.5), ("a", 0.5)]
    (tmp_path / "qrels").write_text("q 0 a 2\nq 0 b -1\n")
    assert read_qrels(tmp_path / "qrels") == {"q": {"a": 2, "b": -1}}


@pytest.mark.parametrize("name", ["a b", "", "a\tb", "a\u00a0b", " a", "a\n", "\ud800"])
def test_a_name_that_is_no_word_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="one word"):
        write_run(tmp_path / "run", FOUND, ["x", name, "y"])
    with pytest.raises(UserError, match="one word"):
        write_qrels(tmp_path / "qrels", [{0}], passage_names=[name])
    with pytest.raises(UserError, match="one word"):
        write_run(tmp_path / "run", FOUND, tag=name)
    assert list(tmp_path.iterdir()) == []


def test_names_are_as_many_as_there_must_be_and_different(tmp_path):
    with pytest.raises(UserError, match="Each query needs a name: 3"):
        write_run(tmp_path / "run", FOUND, ["a", "b"])
    with pytest.raises(UserError, match="Each passage needs a name: 6"):
        write_run(tmp_path / "run", FOUND, passage_names=["a", "b"])
    with pytest.raises(UserError, match='"a" twice'):
        write_run(tmp_path / "run", FOUND, ["a", "b", "a"])


@pytest.mark.parametrize("scores", [[1.0, 2.0], [np.nan, 1.0], [1e39, 1.0]])
def test_scores_that_no_order_has_are_refused(tmp_path, scores):
    with pytest.raises(UserError, match="best first"):
        write_run(tmp_path / "run", Found(np.array([[0, 1]]), np.array([scores])))


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (read_run, "q Q0 a 1 2\n", "line 1: 6 columns"),
        (read_run, "q Q0 a 1 2 x\nq Q0 b 1 x x\n", "line 2: the score"),
        (read_run, "q Q0 a 1 nan x\n", "finite"),
        (read_run, "q Q0 a 1 2 x\nq Q0 a 2 1 x\n", "line 2: query q has passage a twice"),
        (read_qrels, "q 0 a\n", "line 1: 4 columns"),
        (read_qrels, "q 0 a 1.5\n", "whole number"),
        (read_qrels, "q 0 a 1\nq 0 a 0\n", "a twice"),
    ],
)
def test_a_malformed_file_is_told(tmp_path, read, text, told):
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError, match=told):
        read(tmp_path / "file")
