import pytest

from infoflow.corpus import Corpus
from infoflow.foundation import SilentDisplay, UserError, use_display

GOOD = """# newdoc id = x
# sent_id = 1
# text = Geh zum Haus.
1\tGeh\tgehen\tVERB\tVVIMP\t_\t0\troot\t_\t_
2-3\tzum\t_\t_\t_\t_\t_\t_\t_\t_
2\tzu\tzu\tADP\tAPPR\t_\t4\tcase\t_\t_
3\tdem\tder\tDET\tART\t_\t4\tdet\t_\t_
4\tHaus\tHaus\tNOUN\tNN\t_\t1\tobl\t_\tSpaceAfter=No
4.1\tgeh\tgehen\tVERB\t_\t_\t_\t_\t1:conj\t_
5\t.\t.\tPUNCT\t$.\t_\t1\tpunct\t_\t_

# only a comment

1\tJa\tja\tINTJ\t_\t_\t0\troot\t_\t_
"""


def line(identifier="1", form="x", head="0"):
    return f"{identifier}\t{form}\tx\tX\t_\t_\t{head}\troot\t_\t_\n"


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz"])
def test_words_tags_and_tree(write, name):
    corpus = Corpus.from_conllu(write(name, GOOD))
    first, second = corpus
    assert first.text == "Geh zum Haus."
    assert first.words == ["Geh", "zu", "dem", "Haus", "."]
    assert first.upos == ["VERB", "ADP", "DET", "NOUN", "PUNCT"]
    assert first.head == [-1, 3, 3, 0, 0]
    assert first.deprel == ["root", "case", "det", "obl", "punct"]
    assert first.tags == {"lemma": ["gehen", "zu", "der", "Haus", "."], "xpos": ["VVIMP", "APPR", "ART", "NN", "$."]}
    assert second.text == "Ja"
    assert second.id == 1


def test_text_is_rebuilt_where_no_comment_gives_it(write):
    without = "\n".join(row for row in GOOD.splitlines() if not row.startswith("# text"))
    assert Corpus.from_conllu(write("a.conllu", without))[0].text == "Geh zum Haus."


def test_a_text_that_is_not_the_words_is_noted(write):
    class Notes(SilentDisplay):
        said = ""

        def note(self, text):
            Notes.said += text

    with use_display(Notes()):
        assert Corpus.from_conllu(write("a.conllu", GOOD))[0].text == "Geh zum Haus."
        assert "# text" not in Notes.said
        other = write("b.conllu", GOOD.replace("Geh zum Haus.\n", "Lauf!\n"))
        assert Corpus.from_conllu(other)[0].text == "Geh zum Haus."
    assert "b.conllu: the # text of 1 sentences differs from their words" in Notes.said


def test_windows_line_ends_and_a_tree_out_of_order(write):
    rows = line("1", head="3") + line("2", head="1") + line("3", head="0")
    assert Corpus.from_conllu(write("a.conllu", rows.replace("\n", "\r\n")))[0].head == [2, 0, -1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (line() + "\n2 x spaces\n", r"line 3: a CoNLL-U word has 10 tab-separated fields. Got 1"),
        (line("2"), 'line 1: expected word id 1. Got "2"'),
        (line("1") + line("1"), 'line 2: expected word id 2. Got "1"'),
        (line("x-y"), "expected word id 1"),
        (line(head="2"), r'line 1: HEAD must lie in 0\.\.1 \(0: root\). Got "2"'),
        (line(head="_"), 'Got "_"'),
        (line("1", head="2") + line("2", head="1"), "line 1: the heads of word 1 form a cycle"),
        (line("1", head="0") + line("2", head="2"), "line 2: the heads of word 2 form a cycle"),
        (line(form=""), "line 1: the FORM field is empty"),
        ("", "has no sentence"),
    ],
)
def test_malformed_lines(write, rows, message):
    with pytest.raises(UserError, match=message):
        Corpus.from_conllu(write("bad.conllu", rows))
