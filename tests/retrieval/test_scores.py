"""The table of scores, and the readers of benchmarks."""

import gzip
import json
import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from infoflow.corpus import FactConfig, generate_facts
from infoflow.foundation import UserError, make_display, use_display
from infoflow.retrieval import (
    LexicalIndex,
    answer_scores,
    collapse,
    facts_benchmark,
    hit_at,
    load_benchmark,
    reciprocal_rank,
    retrieval_scores,
    terms_of,
)

SHARED = Path(__file__).parents[3] / "shared" / "data" / "retrieval"
needs_bm25 = pytest.mark.skipif(find_spec("bm25s") is None, reason="needs bm25s")


@pytest.fixture(scope="module")
def rankings():
    generator = np.random.default_rng(0)
    ranked = np.stack([generator.permutation(50)[:10] for _ in range(120)])
    relevant = [{int(generator.integers(50))} for _ in range(120)]
    return ranked, relevant, [f"question {number}" for number in range(120)]


def only(table, system, metric, k=0):
    found = table[(table.system == system) & (table.metric == metric) & (table.k == k)]
    assert len(found) == 1
    return found.iloc[0]


def test_the_table_holds_means_intervals_and_controls(rankings):
    ranked, relevant, questions = rankings
    table = retrieval_scores({"mine": ranked}, relevant, questions, 50, cuts=(1, 5, 100))
    row = only(table, "mine", "hit", 5)
    assert row.value == pytest.approx(hit_at(ranked, relevant, 5).mean())
    assert row.low < row.value < row.high
    assert row["count"] == 120
    assert only(table, "mine", "mrr").value == pytest.approx(reciprocal_rank(ranked, relevant).mean())
    assert only(table, "oracle", "hit", 1).value == 1
    chance = only(table, "random", "hit", 5)
    assert row.baseline == chance.value == pytest.approx(0.1, abs=0.08)
    assert not (table.k == 100).any()  # nobody found so many


def test_questions_that_find_nothing_are_told():
    ranked = {"some": [[0, -1], [-1, -1], [1, 2], [-1, -1]], "all": [[0, 1]] * 4}
    table = retrieval_scores(ranked, [{0}, {1}, {2}, {3}], list("abcd"), 6, cuts=(1,))
    assert only(table, "some", "nothing_found").value == 0.5
    assert only(table, "all", "nothing_found").value == 0
    assert only(table, "some", "nothing_found").baseline == 0
    assert only(table, "some", "hit", 1).value == 0.25  # they count as misses


def test_equal_systems_have_equal_replicates(rankings):
    ranked, relevant, questions = rankings
    table = retrieval_scores({"a": ranked, "b": ranked}, relevant, questions, 50)
    assert only(table, "a", "mrr").replicates == only(table, "b", "mrr").replicates


def test_the_order_of_questions_does_not_matter(rankings):
    ranked, relevant, questions = rankings
    order = np.random.default_rng(1).permutation(120)
    turned = retrieval_scores({"a": ranked[order]}, [relevant[n] for n in order], [questions[n] for n in order], 50)
    straight = retrieval_scores({"a": ranked}, relevant, questions, 50)
    one, other = only(turned, "a", "hit", 5), only(straight, "a", "hit", 5)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_collapse():
    assert collapse([[0], [0], [0]], 10) == 0
    assert collapse([[number] for number in range(10)], 10) == pytest.approx(1)
    assert collapse([[0, -1], [1, -1]], 4) == pytest.approx(0.5)
    assert math.isnan(collapse([[-1]], 4))


def test_answers_have_a_constant_baseline():
    answers = [["oslo"], ["oslo"], ["rome"], ["the red house"]]
    table = answer_scores(["oslo", "rome", "rome", "red barn"], answers, list("abcd"), "reader")
    assert only(table, "reader", "em").value == 0.5
    assert only(table, "reader", "em").baseline == 0.5
    assert only(table, "reader", "f1").value == pytest.approx((1 + 0 + 1 + 0.5) / 4)


@needs_bm25
def test_bm25_finds_the_entity_and_cannot_choose_the_passage():
    """The specification measured hit@1, 2, 4 of .29, .56, .99 with 256 entities."""
    world = generate_facts(FactConfig(entities=256))
    benchmark, tokenizer = facts_benchmark(world), world.tokenizer()
    index = LexicalIndex(terms_of(benchmark.passages.texts(), tokenizer))
    queries = [question.replace("[MASK]", "") for question in benchmark.questions]
    found = index.search(terms_of(queries, tokenizer), 4)
    hits = [hit_at(found.ids, benchmark.relevant, k).mean() for k in (1, 2, 4)]
    assert hits == pytest.approx([0.29, 0.56, 0.99], abs=0.02)


# -- readers -----------------------------------------------------------------------------------------------------------


def lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) if isinstance(row, dict) else row for row in rows) + "\n")


def test_beir(tmp_path):
    lines(tmp_path / "corpus.jsonl", {"_id": "d1", "title": "A", "text": "x"}, {"_id": "d2", "title": "", "text": "y"})
    lines(tmp_path / "queries.jsonl", {"_id": "q1", "text": "what?"}, {"_id": "q2", "text": "unjudged"})
    lines(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", "q1\td2\t1", "q1\td1\t0")
    found = load_benchmark(tmp_path)
    assert found.questions == ("what?",)
    assert found.relevant == (frozenset({1}),)
    assert found.passages[0].title == "A"
    assert (found.question_names, found.passage_names) == (("q1",), ("d1", "d2"))


def test_documents_with_a_title_alone_are_passages_and_judgements_of_empty_ones_are_skipped(tmp_path):
    lines(
        tmp_path / "corpus.jsonl",
        {"_id": "d1", "title": "A title", "text": ""},
        {"_id": "d2", "title": "", "text": " "},
        {"_id": "d3", "title": None, "text": "y"},
    )
    lines(tmp_path / "queries.jsonl", *({"_id": f"q{number}", "text": f"what {number}?"} for number in range(3)))
    judged = ["q0\td1\t1", "q0\td2\t2", "q1\td2\t1", "q1\td3\t0", "q2\td3\t1", "q2\td2\t0"]
    lines(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", *judged)
    found = load_benchmark(tmp_path)
    assert found.questions == ("what 0?", "what 2?")
    assert (found.question_names, found.passage_names) == (("q0", "q2"), ("d1", "d3"))
    assert found.relevant == (frozenset({0}), frozenset({1}))
    assert [(one.title, one.text) for one in found.passages] == [("", "A title"), ("", "y")]
    assert found.num_skipped == 2
    lines(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", "q0\td4\t1")
    with pytest.raises(UserError, match=r"test.tsv, line 2: .*Got d4, which is missing"):
        load_benchmark(tmp_path)


def test_reqa_with_a_blank_candidate(tmp_path):
    with gzip.open(tmp_path / "test.candidates.txt.gz", "wt") as file:
        file.write("one\n\ntwo\n")
    lines(tmp_path / "test.queries.tsv", "q?\t2", "r?\t0,2")
    found = load_benchmark(tmp_path)
    assert found.relevant == (frozenset({1}), frozenset({0, 1}))


def test_judgements_of_blank_candidates_are_skipped_and_counted(tmp_path, capsys):
    lines(tmp_path / "test.candidates.txt", "one", " ", "two")
    lines(tmp_path / "test.queries.tsv", "q?\t2,1", "r?\t1", "s?\t0")
    with use_display(make_display("plain")):
        found = load_benchmark(tmp_path)
    assert (found.questions, found.relevant) == (("q?", "s?"), (frozenset({1}), frozenset({0})))
    assert [one.text for one in found.passages] == ["one", "two"]
    assert found.num_skipped == 2
    assert "2 judgements of documents without title and text were skipped" in "".join(capsys.readouterr())
    lines(tmp_path / "test.queries.tsv", "q?\t0", "r?\t1,3")
    with pytest.raises(UserError, match=r"test.queries.tsv, line 2: .* from 0 to 2. Got r"):
        load_benchmark(tmp_path)


@pytest.mark.parametrize("line", ["q?", "q?\tx", "q?\t9"])
def test_a_malformed_judgement_is_told(tmp_path, line):
    lines(tmp_path / "test.candidates.txt", "one")
    lines(tmp_path / "test.queries.tsv", line)
    with pytest.raises(UserError, match="line 1"):
        load_benchmark(tmp_path)


def test_no_benchmark_is_told(tmp_path):
    with pytest.raises(UserError, match="no retrieval benchmark"):
        load_benchmark(tmp_path)
    lines(tmp_path / "docs.jsonl", {"id": 1, "text": "x"})
    with pytest.raises(UserError, match="judgements"):
        load_benchmark(tmp_path)


def test_quotation_marks_of_pandas_are_undone(tmp_path):
    lines(tmp_path / "test.candidates.txt", "one", "two")
    (tmp_path / "test.queries.tsv").write_text('"who said ""no""?"\t"0,1"\n')
    assert load_benchmark(tmp_path).questions == ('who said "no"?',)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(("name", "passages", "questions"), [("reqa-squad", 10_246, 10_539), ("cisi", 1_460, 76)])
def test_real_files(name, passages, questions):
    found = load_benchmark(SHARED / name)
    assert (len(found.passages), len(found.questions)) == (passages, questions)
