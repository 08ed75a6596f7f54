import pytest

from infoflow.corpus import Corpus, describe_corpus, generate_grammar, list_corpora, load_corpus, printable


@pytest.mark.slow
def test_the_built_in_corpora_are_listed():
    tatoeba, grammar, facts = list_corpora()
    assert (tatoeba.name, tatoeba.sentences) == ("tatoeba-en-fr", 178_009)
    assert "CC-BY 2.0 FR" in tatoeba.licence
    assert grammar.name == "grammar"
    assert (facts.name, facts.sentences) == ("facts", len(load_corpus("facts")))


def test_description_counts(write):
    corpus = Corpus.from_parallel(write("a.tsv", "Go on .\tx\ngo  on .\ty\nstop\tz\n"))
    described = describe_corpus(corpus, examples=1)
    assert (described.sentences, described.distinct_sources) == (3, 2)
    assert (described.words, described.distinct_words) == (7, 5)
    assert described.words_per_sentence["mean"] == 7 / 3
    assert described.columns == ("text", "translation")
    assert described.examples == ({"text": "Go on .", "translation": "x"},)
    assert described.splits == ()  # too few sentences for three parts


def test_description_of_annotation():
    corpus = generate_grammar(20)
    described = describe_corpus(corpus)
    assert described.tag_counts["upos"]["PUNCT"] == 20
    assert len(described.examples) == 3
    assert described.examples[0]["ccg"] == " ".join(corpus[0].tags["ccg"])


def test_text_of_a_corpus_cannot_steer_the_terminal(write):
    nasty = "a\x1b[2Jb\u202ec\x07d\x9be"
    described = describe_corpus(Corpus.from_text(write("a.txt", nasty)))
    assert described.examples[0]["text"] == "a[2Jbcde"


def test_printable_keeps_every_script():
    text = "naïve 日本語 עברית नमस्ते 👩‍🔬"
    assert printable(text) == text
    assert printable("a\nb\tc") == "a b c"
