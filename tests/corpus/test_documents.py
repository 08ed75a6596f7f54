"""Documents: read, numbered, kept by parts, never divided between the parts of a split."""

import inspect
import random

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset

from infoflow.corpus import Corpus, describe_corpus, load_corpus, most_of_document, sentences_of
from infoflow.foundation import UserError

TEXT = "One a.\nOne b.\n\n\n \nTwo a.\n\nThree a.\nThree b.\nThree c.\n"
SENTENCES = ["One a.", "One b.", "Two a.", "Three a.", "Three b.", "Three c."]
NUMBERS = [0, 0, 1, 2, 2, 2]
NAMES = ["x", "x", "y", "z", "z", "z"]
FRAME = {"said": SENTENCES, "book": NAMES}
CONLLU = "\n".join(
    ("# newdoc id = x\n" if begins else "") + f"1\t{word}\t_\tX\t_\t_\t0\troot\t_\t_\n"
    for word, begins in (("a", 1), ("b", 0), ("c", 1), ("d", 1), ("e", 0), ("f", 0))
)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_blank_lines_divide_the_documents_of_a_text_file(write, name):
    corpus = load_corpus(write(name, "\n" + TEXT), documents=True)
    assert list(corpus.column("text")) == SENTENCES
    assert corpus.documents.tolist() == NUMBERS
    assert [sentence.document for sentence in corpus] == NUMBERS
    assert corpus[0].tags == {}


def test_a_corpus_read_without_documents_is_as_before(write):
    """Digests name caches and keys of runs: these were computed by a version that knew no documents."""
    plain, tree = Corpus.from_text(write("a.txt", TEXT)), Corpus.from_conllu(write("a.conllu", CONLLU))
    assert (plain.documents, tree.documents, plain[0].document) == (None, None, None)
    assert plain.columns == {"text"}
    assert (plain.digest, tree.digest) == ("fe524289e55de084", "37ee4d4f4cf79609")
    assert plain.digest != Corpus.from_text(write("a.txt", TEXT), documents=True).digest
    assert plain.content_ids.tolist() == Corpus.from_text(write("a.txt", TEXT), documents=True).content_ids.tolist()


def test_newdoc_begins_a_document_of_a_treebank(write):
    corpus = load_corpus(write("a.conllu", CONLLU), documents=True)
    assert corpus.documents.tolist() == NUMBERS
    late = CONLLU.removeprefix("# newdoc id = x\n").replace("# newdoc id = x", "# newdoc", 1)
    assert Corpus.from_conllu(write("b.conllu", late), documents=True).documents.tolist() == NUMBERS
    assert describe_corpus(corpus).tag_counts.keys() == {"upos", "deprel", "xpos"}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "pandas", "dataset", "list"])
def test_a_column_names_documents(write, kind):
    frame = pd.DataFrame(FRAME)
    columns = {"text_column": "said", "document_column": "book"}
    if kind == "csv":
        corpus = load_corpus(write("a.csv", frame.to_csv(index=False)), **columns)
    elif kind == "jsonl":
        corpus = load_corpus(write("a.jsonl", frame.to_json(orient="records", lines=True)), **columns)
    elif kind == "list":
        corpus = Corpus.from_sentences(SENTENCES, documents=NAMES)
    else:
        corpus = load_corpus(frame if kind == "pandas" else Dataset.from_dict(FRAME), **columns)
    assert list(corpus.column("text")) == SENTENCES
    assert corpus.documents.tolist() == NUMBERS
    assert corpus.digest == Corpus.from_text(write("a.txt", TEXT), documents=True).digest


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["x", "y", "x"], r'must be consecutive\. "x" occurs again'),
        (["x", None, "y"], "2: the document column must not be empty"),
        (["x", "", "y"], "2: the document column must not be empty"),
        (["x", float("nan"), "y"], "2: the document column must not be empty"),
        (["x", ["y"], "y"], "2: the document column must not be empty"),
        (["x", "y"], "Got 2 for 3 sentences"),
    ],
)
def test_documents_that_are_none(names, message):
    with pytest.raises(UserError, match=message):
        Corpus.from_sentences(["a", "b", "c"], documents=names)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grammar", {"documents": True}, "grammar does not mark documents"),
        ("a.tagged", {"documents": True}, "does not mark documents"),
        ("a.tsv", {"documents": True}, "does not mark documents"),
        ("a.csv", {"documents": True, "text_column": "said"}, "--document-column NAME"),
        ("a.csv", {"document_column": "page", "text_column": "said"}, "has no column page"),
        ("a.txt", {"document_column": "page"}, "has no columns"),
        ("a.tsv", {"lines": "paragraphs"}, "already contains sentences"),
        ("a.csv", {"text_column": "said", "translation_column": "book", "lines": "paragraphs"}, "have a translation"),
    ],
)
def test_what_cannot_be_read_as_documents_or_paragraphs(write, name, options, message):
    contents = {
        "a.txt": TEXT,
        "a.tsv": "a\tb\n",
        "a.tagged": "a\tb\n",
        "a.csv": pd.DataFrame(FRAME).to_csv(index=False),
    }
    with pytest.raises(UserError, match=message):
        load_corpus(write(name, contents[name]) if name in contents else name, **options)


def test_an_unknown_kind_of_lines_is_refused(write):
    with pytest.raises(UserError, match=r'lines must be among sentences, paragraphs\. Got "words"'):
        inspect.unwrap(Corpus.from_text.__func__)(
            Corpus, write("a.txt", "a dog"), lines="words"
        )  # else beartype speaks first


def test_documents_in_memory_have_a_column(write):
    with pytest.raises(UserError, match="document_column="):
        load_corpus(pd.DataFrame(FRAME), text_column="said", documents=True)


def test_parts_keep_documents_and_know_where_text_is_broken(write):
    corpus = Corpus.from_text(write("a.txt", TEXT), documents=True)
    part = corpus.select([0, 2, 3, 5])
    assert part.documents.tolist() == [0, 1, 2, 2]
    assert part.stretches.tolist() == [0, 1, 2, 3]
    assert corpus.stretches.tolist() == NUMBERS
    assert part.select([2, 3]).filter_words(1).documents.tolist() == [2, 2]
    with pytest.raises(UserError, match=r"NSP needs documents.*a\.txt has none\.\n.*--documents"):
        Corpus.from_text(write("a.txt", TEXT)).require_documents("NSP")


def test_the_number_of_a_document_is_that_of_its_text_in_its_order():
    texts = ["a", "b", "c", "a", "b", "b", "a"]
    corpus = Corpus.from_sentences(texts, documents=[0, 0, 1, 2, 2, 3, 3])
    ids = corpus.document_ids
    assert ids[0] == ids[1] == ids[3] == ids[4]
    assert len({*ids.tolist()}) == 3
    assert (corpus.select([3, 4]).document_ids == ids[0]).all()


def many(num=300, seed=0):
    """Documents of 1 to 8 sentences, a few said everywhere."""
    draw = random.Random(seed)
    for number in range(num):
        for place in range(draw.randint(1, 8)):
            yield ("Yes." if draw.random() < 0.2 else f"sentence {place} of text {number}"), number


def corpus_of(rows):
    texts, numbers = zip(*rows, strict=True)
    return Corpus.from_sentences(texts, documents=numbers)


@pytest.mark.parametrize("rule", ["near-duplicates", "source"])
def test_a_document_lies_in_one_part_whole(rule):
    corpus = corpus_of(many())
    split = corpus.split(validation=0.2, test=0.2, rule=rule)
    parts = [part.documents for part in (split.train, split.validation, split.test)]
    sizes = dict(zip(*np.unique(corpus.documents, return_counts=True), strict=True))
    seen = [set(part.tolist()) for part in parts]
    assert not seen[0] & seen[1] | seen[0] & seen[2] | seen[1] & seen[2]
    for part in parts:
        assert all(sizes[number] == count for number, count in zip(*np.unique(part, return_counts=True), strict=True))
    lost = sum(count for reasons in split.left_out.values() for count in reasons.values())
    assert sum(map(len, parts)) + lost == len(corpus)
    assert 30 < len(seen[2]) < 90
    assert "Yes." in set(split.train.column("text")) & set(split.test.column("text"))


def test_a_document_stays_in_its_part_as_the_corpus_grows_and_whatever_its_place():
    rows = [*many()]
    before = corpus_of(rows).split(validation=0.2, test=0.2, rule="source")
    grown = corpus_of([*((text, number + 1000) for text, number in many(100, seed=1)), *rows])
    after = grown.split(validation=0.2, test=0.2, rule="source")
    assert set(before.test.document_ids) <= set(after.test.document_ids)
    assert set(before.train.document_ids) <= set(after.train.document_ids)


def test_a_copy_with_few_changes_leaves_training():
    rows = [*many()]
    split = corpus_of(rows).split(validation=0.2, test=0.2)
    copied = int(split.test.documents[-1])
    copy = [text for text, number in rows if number == copied]
    # One more sentence makes another document, which the hash may put anywhere.
    for extra in range(20):
        added = corpus_of([*rows, *((text, 1000) for text in [*copy, f"and {extra} more to say"])])
        again = added.split(validation=0.2, test=0.2)
        if len(copy) > 1:
            assert len(set(rows_of(again.train)) & set(copy) - {"Yes."}) == 0
            assert 300 not in again.train.documents


def rows_of(corpus):
    return corpus.column("text")


def test_most_of_a_document():
    found = np.array([True, False, True, False, False, True])
    assert most_of_document(found, np.array([0, 0, 1, 2, 2, 2])).tolist() == [True, True, True, False, False, False]


def test_too_few_documents_for_a_part():
    with pytest.raises(UserError, match=r"too few documents \(1\)"):
        Corpus.from_sentences(["a", "b", "c"], documents=[0, 0, 0]).split(validation=0.1, test=0.1)


def test_what_is_told_of_documents(write):
    facts = describe_corpus(Corpus.from_text(write("a.txt", TEXT), documents=True))
    assert (facts.documents, facts.sentences_per_document) == (3, 2.0)
    assert describe_corpus(Corpus.from_text(write("a.txt", TEXT))).documents is None


def test_paragraphs_are_cut_into_sentences_of_one_document(write):
    text = "Mr. Smith came. He saw.\nHe left.\n\nWho? Me!\n"
    corpus = load_corpus(write("a.txt", text), documents=True, lines="paragraphs")
    assert list(corpus.column("text")) == ["Mr. Smith came.", "He saw.", "He left.", "Who?", "Me!"]
    assert corpus.documents.tolist() == [0, 0, 0, 1, 1]
    assert load_corpus(write("a.txt", text), lines="paragraphs").documents is None
    table = pd.DataFrame({"abstract": ["One. Two.", "Three."], "id": ["a", "b"]})
    corpus = load_corpus(table, text_column="abstract", document_column="id", lines="paragraphs")
    assert [(each.text, each.document) for each in corpus] == [("One.", 0), ("Two.", 0), ("Three.", 1)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["He paid 3.50 for it.", "Then he left."],
        ["“Why?” asked J. R. Smith.", "“Because,” said he."],
        ["It rose, e.g. in the U.S. Navy, to No. 5 of the list.", "See Fig. 2 (of Lee et al. 2019)."],
        ["“Stop!”", "“No.”", "(So it went on.)", "1990 was a good year…", "Was it?"],
        ["Taller than I.", "He agreed."],
        ["no capital. so no end"],
        ["Élan.", "Über alles!", "Ça va?", "¿Qué?"],
        ["这是一句。", "那是两句！", "好"],
    ],
)
def test_where_sentences_end(sentences):
    assert sentences_of(" ".join(sentences)) == sentences
    assert [part for sentence in sentences for part in sentences_of(sentence)] == sentences


def test_nothing_is_lost_between_sentences():
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choice("aB1.!? \"'“”()…。") for _ in range(40))
        assert "".join("".join(sentences_of(text)).split()) == "".join(text.split())
