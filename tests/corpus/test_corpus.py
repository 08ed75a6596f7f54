import numpy as np
import pytest

from infoflow.corpus import Corpus, split_numbers
from infoflow.foundation import UserError


@pytest.fixture
def corpus(write):
    return Corpus.from_text(write("a.txt", "".join(f"{'word ' * (1 + i % 5)}{i}\n" for i in range(50))))


def test_indexing(corpus):
    assert corpus[3].text == corpus[np.int64(3)].text == corpus[-47].text
    assert [s.id for s in corpus[10:20:3]] == [10, 13, 16, 19]
    for index in (50, -51):
        with pytest.raises(IndexError):
            corpus[index]


def test_parts_keep_the_ids_and_order_of_sentences(corpus):
    part = corpus.select([7, 3, 40]).select([2, 0])
    assert part.ids.tolist() == [40, 7]
    assert [s.id for s in part] == [40, 7]
    assert [s.text for s in part] == [corpus[40].text, corpus[7].text]
    assert list(part.column("text")) == part.dataset["text"][:] == [s.text for s in part]


def test_select_by_mask(corpus):
    mask = np.arange(50) % 7 == 0
    assert corpus.select(mask).ids.tolist() == np.flatnonzero(mask).tolist()


def test_digest_of_a_part_is_a_function_of_the_sentences_chosen(corpus):
    assert corpus.select([1, 2]).digest == corpus.select([0, 1, 2]).select([1, 2]).digest
    assert len({part.digest for part in (corpus, corpus.select([1, 2]), corpus.select([2, 1]))}) == 3


def test_select_errors(corpus):
    with pytest.raises(UserError, match="No sentence"):
        corpus.select([])
    with pytest.raises(UserError, match=r"lie in 0\.\.49\. Got 0\.\.50"):
        corpus.select([0, 50])


def test_filter_words(corpus):
    part = corpus.filter_words(3, 4)
    assert {len(s.text.split()) for s in part} == {3, 4}
    assert len(part) == sum(3 <= len(s.text.split()) <= 4 for s in corpus)
    assert len(corpus.filter_words(6)) == 10


def test_filter_counts_given_words(write):
    corpus = Corpus.from_tagged(write("a.tags", "New York\tN\nsleeps\tV\n"))
    assert corpus.word_counts.tolist() == [2]


def test_missing_column(corpus):
    with pytest.raises(UserError, match=r"has no column translation; it has text"):
        list(corpus.column("translation"))


def keys(part):
    return {" ".join(s.text.casefold().split()) for s in part}


@pytest.fixture
def duplicated(write):
    rows = [f"{'Go' if i % 2 else 'go'}  {i % 200}\ttranslation {i}\n" for i in range(1000)]
    return Corpus.from_parallel(write("a.tsv", "".join(rows)))


def test_split_has_no_leak(duplicated):
    split = duplicated.split(seed=1, validation=0.2, test=0.3)
    parts = (split.train, split.validation, split.test)
    assert not keys(parts[0]) & keys(parts[1])
    assert not keys(parts[0]) & keys(parts[2])
    assert not keys(parts[1]) & keys(parts[2])
    assert sorted(np.concatenate([part.ids for part in parts])) == list(range(1000))
    assert len(keys(parts[1])) == pytest.approx(40, abs=20)
    assert len(keys(parts[2])) == pytest.approx(60, abs=20)


def test_split_is_deterministic_and_depends_on_the_seed(duplicated):
    first, again, other = (duplicated.split(seed=seed, validation=0.2, test=0.2) for seed in (3, 3, 4))
    assert first.test.ids.tolist() == again.test.ids.tolist()
    assert first.test.digest == again.test.digest
    assert keys(first.test) != keys(other.test)


def test_a_sentence_stays_in_its_part_when_the_corpus_grows(duplicated):
    part = duplicated.select(np.arange(300))
    whole, half = duplicated.split(validation=0.2, test=0.2), part.split(validation=0.2, test=0.2)
    assert keys(half.test) <= keys(whole.test)
    assert keys(half.train) <= keys(whole.train)


def test_split_without_a_part(duplicated):
    split = duplicated.split(validation=0.0, test=0.1)
    assert split.validation is None
    assert len(split.train) + len(split.test) == 1000
    assert (split.rule, split.left_out) == ("near-duplicates", {})


@pytest.mark.parametrize(("validation", "test"), [(-0.1, 0.1), (0.6, 0.4), (1.0, 0.0)])
def test_split_shares(duplicated, validation, test):
    with pytest.raises(UserError, match=r"share|below 1"):
        duplicated.split(validation=validation, test=test)


def test_split_of_too_few_sentences(write):
    with pytest.raises(
        UserError, match=r"(?s)too few sentences \(1\) for a .* similar ones stay in the same part.*Use a more varied"
    ):
        Corpus.from_text(write("a.txt", "one\n")).split()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Water is H₂O.", "Water is H2O."),
        ("un café", "un cafe\u0301"),
        ("the ﬁne day", "the fine day"),
        ("Go.", " go. "),
    ],
)
def test_one_sentence_in_two_spellings_has_one_part(one, other):
    first, second, another = split_numbers([one, other, "something else"], seed=0)
    assert first == second != another


def test_limits_count_words_of_scripts_without_spaces(write):
    corpus = Corpus.from_text(write("a.txt", "我" * 300 + "\n他喜欢猫，不喜欢狗。\nThe old dog sleeps.\nฉันชอบแมว\n"))
    assert corpus.word_counts.tolist() == [300, 8, 4, 8]
    assert [one.text[0] for one in corpus.filter_words(1, 24)] == ["他", "T", "ฉ"]
