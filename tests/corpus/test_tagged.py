import pytest

from infoflow.corpus import Corpus, load_corpus
from infoflow.foundation import UserError


def test_one_tag(write):
    corpus = Corpus.from_tagged(write("a.tags", "the\tD\ndog\tN\n\n\nruns\tV\n"))
    assert [s.words for s in corpus] == [["the", "dog"], ["runs"]]
    assert [s.tags for s in corpus] == [{"tag": ["D", "N"]}, {"tag": ["V"]}]
    assert corpus[0].text == "the dog"


def test_supertags_bring_their_parts(write):
    corpus = Corpus.from_tagged(write("a.tags", "sees\tV\t(S\\NP)/NP\n"), tags=("upos", "ccg"))
    assert corpus[0].upos == ["V"]
    assert corpus[0].tags == {"ccg": ["(S\\NP)/NP"], "ccg_left": ["NP"], "ccg_right": ["NP"]}


def test_errors(write):
    with pytest.raises(UserError, match=r"line 2: expected a word and 1 tag.*\(tag\)\. Got 1 field\(s\)"):
        Corpus.from_tagged(write("a.tags", "the\tD\ndog\n"))
    with pytest.raises(UserError, match="cannot be called head"):
        Corpus.from_tagged(write("b.tags", "the\tD\n"), tags=("head",))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1 The O", "2 cat O", "1 It O", "2 sleeps O"], "has numbers, not words"),
        (["word pos ner", "The DT O", "cat NN O"], "first line names the columns: word, pos, ner"),
        (["DT The O", "NN cat O", "VBZ sleeps O", ". . O"], "has tags, not words"),
    ],
)
def test_numbers_names_and_parts_of_speech_are_no_words(lines, message, write):
    with pytest.raises(UserError, match=message):
        Corpus.from_tagged(write("a.conll", "\n".join(lines) + "\n"), ("pos", "ner"), blanks=True)


def test_numbers_that_start_anew_without_a_blank_line_are_refused(write):
    path = write("a.conll", "1 The O\n2 cat O\n1 It O\n2 sleeps O\n")
    with pytest.raises(UserError, match="restarts without a blank line"):
        load_corpus(path)


def test_identifiers_of_words_are_skipped(write):
    path = write("a.conll", "88642d The O\n603461 cat O\nab-316 sleeps O\n32f225 . O\n")
    assert load_corpus(path)[0].words == ["The", "cat", "sleeps", "."]
