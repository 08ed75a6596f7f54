import pytest

from infoflow.corpus import Corpus
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
