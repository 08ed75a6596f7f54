"""Trivial passages and leaked questions of users' data: against plain loops, and what is said of bad input."""

import numpy as np
import pytest
from retrieval.tiny_arms import tiny_world

from infoflow.corpus import Corpus
from infoflow.foundation import UserError
from infoflow.retrieval import (
    NULL,
    Library,
    Passages,
    build_passage_index,
    hit_at,
    leakage_scores,
    open_passage_index,
    origins,
    query_leakage,
)
from infoflow.subjects.retrieval.training import query_rows

TEXTS = [
    "ada lund works as a baker . she lives in oslo .",
    "ben roth is a nurse .   she lives  in oslo .",
    "the town of oslo is large .",
    "she lives in oslo . she lives in rome .",
]


def test_origins_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    words = ["a", "b", "c", "d"]
    texts = [" ".join(rng.choice(words, size=rng.integers(1, 9))) for _ in range(60)]
    asked = [" ".join(rng.choice(words, size=rng.integers(1, 4))) for _ in range(80)] + ["", "zzz", " a  b "]
    passages = Passages.from_rows(texts)
    plain = [" ".join(text.split()) for text in asked]
    wanted = [[id for id, text in enumerate(texts) if words and f" {words} " in f" {text} "] for words in plain]
    assert origins(asked, passages) == wanted
    assert any(wanted)


def test_words_must_be_whole_and_white_space_does_not_count() -> None:
    passages = Passages.from_rows(TEXTS)
    assert origins(["she lives in oslo .", "she lives in", "lives in osl", "she  lives\nin oslo ."], passages) == [
        [0, 1, 3], [0, 1, 3], [], [0, 1, 3],
    ]  # fmt: skip


def corpus_of_passages() -> tuple[Corpus, Library]:
    """Sentences of the world's own passages, as a user's corpus would have them."""
    world, tokenizer, _ = tiny_world()
    library = Library(Passages.from_rows(world.passages()), tokenizer)
    sentences = [text.split(" . ")[0].removesuffix(" .") for text in list(library.passages.texts())[:6]]
    return Corpus.from_sentences(sentences), library


def test_no_sentence_may_read_the_passage_that_it_comes_from() -> None:
    _, tokenizer, _ = tiny_world()
    corpus, library = corpus_of_passages()
    gold = np.arange(6)
    rows = query_rows(corpus, tokenizer, library, gold, keep_spanless=True)
    for row in range(6):
        labels = rows.example(row).labels
        assert row in labels["excluded"]
        assert int(labels["gold"]) == NULL, "a passage that answers by copying is no gold one"
    more = query_rows(corpus, tokenizer, library, gold, [[7]] * 6, keep_spanless=True)
    assert all(more.example(row).labels["excluded"].tolist() == [row, 7] for row in range(6)), "what is given stays out"
    free = query_rows(corpus, tokenizer, library, gold, keep_spanless=True, exclude_origin=False)
    assert [int(free.example(row).labels["gold"]) for row in range(6)] == list(range(6))
    assert not any(len(free.example(row).labels["excluded"]) for row in range(6))
    assert rows.digest != free.digest


def test_a_sentence_that_stands_everywhere_has_nothing_to_read() -> None:
    _, tokenizer, _ = tiny_world()
    corpus, _ = corpus_of_passages()
    text = next(iter(corpus)).text
    library = Library(Passages.from_rows([text, f"{text} {text}"]), tokenizer)
    with pytest.raises(UserError, match=r"for 1 sentences each of the 2 passages .* nothing is left to read"):
        query_rows(Corpus.from_sentences([text]), tokenizer, library, keep_spanless=True)


def test_an_index_leaves_out_where_a_sentence_comes_from(tmp_path) -> None:
    build_passage_index(Passages.from_rows(TEXTS), tmp_path / "index")
    index = open_passage_index(tmp_path / "index")
    sentence = ["the town of oslo is large ."]
    assert index.search(sentence, 1).ids.tolist() == [[2]]
    without = index.search(sentence, 4, exclude_origin=True).ids[0].tolist()
    assert 2 not in without
    assert without[0] != NULL
    assert 2 not in index.look_up(sentence, 4, exclude_origin=True)["passage"].tolist()
    question = ["where is oslo ?"]
    assert index.search(question, 4, exclude_origin=True).ids.tolist() == index.search(question, 4).ids.tolist()


def test_a_sentence_may_not_be_kept_from_every_passage() -> None:
    _, tokenizer, _ = tiny_world()
    corpus, library = corpus_of_passages()
    every = list(range(len(library)))
    for out, left in ((every, False), ([*every, *every, NULL], False), ([*every[1:], NULL, NULL], True)):
        options = {"keep_spanless": True, "exclude_origin": False}
        if left:
            query_rows(corpus, tokenizer, library, None, [[]] * 5 + [out], **options)
            continue
        with pytest.raises(UserError, match=r"for 1 sentences each of the \d+ passages .* nothing is left to read"):
            query_rows(corpus, tokenizer, library, None, [[]] * 5 + [out], **options)


# -- leakage -----------------------------------------------------------------------------------------------------------

QUESTIONS = ["Where does Ada Lund live?", "What is Ben Roth?", "Who bakes?", "Where is Oslo?"]
TRAINING = ["where does ada lund live", "Ben Roth, as you know, is a nurse.", "ben is a nurse", "rome is old"]


def test_repeated_and_answered_questions_are_counted_and_shown() -> None:
    subjects = ["Ada Lund", "Ben Roth", "Ada Lund", "Oslo"]
    answers = [["oslo"], ["a nurse", "nurse"], ["baker"], ["norway"]]
    found = query_leakage(QUESTIONS, TRAINING, answers, subjects)
    assert (found.repeated, found.with_answer, found.leaked) == ((0,), (1,), (0, 1))
    assert found.examples == ((QUESTIONS[0], TRAINING[0]), (QUESTIONS[1], TRAINING[1]))
    assert "2 test questions occur in training (1 as questions, 1 as answers)" in str(found)
    shown = found.table()
    assert shown[["questions", "leaked"]].drop_duplicates().to_numpy().tolist() == [[4, 2]]
    assert list(zip(shown["question"], shown["query"], strict=True)) == list(found.examples)
    assert query_leakage(QUESTIONS, TRAINING).leaked == (0,)
    assert str(query_leakage(QUESTIONS, [])) == "No test question is among the training queries."


def test_leaks_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    names, objects = ["ann", "bob", "cat"], ["red", "blue", "green"]
    training = [" ".join(rng.choice([*names, *objects, "is"], size=4)) for _ in range(6)]
    questions = [f"what is {name} {number}" for number, name in enumerate(rng.choice(names, 30))]
    subjects, answers = [text.split()[2] for text in questions], [[str(rng.choice(objects))] for _ in questions]
    wanted = tuple(
        number
        for number, (subject, right) in enumerate(zip(subjects, answers, strict=True))
        if any(subject in text.split() and right[0] in text.split() for text in training)
    )
    found = query_leakage(questions, training, answers, subjects)
    assert found.with_answer == wanted
    assert 0 < len(wanted) < 30
    assert len(found.examples) == min(10, len(wanted))


def test_scores_are_given_with_and_without() -> None:
    ranked, relevant = {"bm25": [[0], [1], [0], [2]]}, [[0], [1], [3], [2]]
    leakage = query_leakage(QUESTIONS, TRAINING)
    found = leakage_scores(ranked, relevant, QUESTIONS, 4, leakage, cuts=(1,))
    hits = found[(found["system"] == "bm25") & (found["metric"] == "hit")].set_index("queries")["value"]
    assert hits["all"] == pytest.approx(np.mean(hit_at(ranked["bm25"], relevant, 1)))
    assert hits["not leaked"] == pytest.approx(2 / 3)
    none = leakage_scores(ranked, relevant, QUESTIONS, 4, query_leakage(QUESTIONS, ["x"]), cuts=(1,))
    assert set(none["queries"]) == {"all"}


BAD = [
    ({"answers": [["a"]]}, "Each of 4 questions needs its answers. Got 1"),
    ({"subjects": ["a", "b", "c", "d"]}, "Got only one of them"),
    ({"answers": [["a"]] * 4}, "Got only one of them"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_what_does_not_fit_is_told(given, message) -> None:
    with pytest.raises(UserError, match=message):
        query_leakage(QUESTIONS, TRAINING, **given)


def test_a_test_that_training_knows_whole_is_refused() -> None:
    leakage = query_leakage(QUESTIONS, QUESTIONS)
    with pytest.raises(UserError, match="All 4 test questions occur in training"):
        leakage_scores({"bm25": [[0]] * 4}, [[0]] * 4, QUESTIONS, 4, leakage)
    with pytest.raises(UserError, match="The leakage belongs to other questions"):
        leakage_scores({"bm25": [[0]]}, [[0]], QUESTIONS[:1], 4, leakage)
