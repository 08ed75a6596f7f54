import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value

from infoflow.corpus import Corpus
from infoflow.foundation import UserError


def test_text_and_nested_translation():
    rows = {"translation": [{"en": " one ", "de": "eins"}, {"en": "", "de": "x"}, {"en": "two", "de": "zwei"}]}
    corpus = Corpus.from_dataset(Dataset.from_dict(rows), text="translation.en", translation="translation.de")
    assert [(s.text, s.translation) for s in corpus] == [("one", "eins"), ("two", "zwei")]


def test_words_and_class_labels():
    features = Features({"tokens": Sequence(Value("string")), "upos": Sequence(ClassLabel(names=["DET", "NOUN"]))})
    dataset = Dataset.from_dict({"tokens": [["the", "dog"]], "upos": [[0, 1]]}, features=features)
    corpus = Corpus.from_dataset(dataset, text=None, words="tokens", tags=["upos"])
    assert corpus[0].text == "the dog"
    assert corpus[0].upos == ["DET", "NOUN"]


def test_a_stream_equals_the_dataset(small_batches):
    dataset = Dataset.from_dict({"text": [f"sentence {i}" for i in range(11)]})
    streamed = Corpus.from_dataset(dataset.to_iterable_dataset())
    assert streamed.digest == Corpus.from_dataset(dataset).digest
    assert [s.text for s in streamed] == dataset["text"][:]
    # A second pass over the same stream finds its file.
    assert Corpus.from_dataset(dataset.to_iterable_dataset()).digest == streamed.digest


def test_errors():
    dataset = Dataset.from_dict({"sentence": ["a"]})
    with pytest.raises(UserError, match=r"no column 'text'\. Its columns: sentence"):
        Corpus.from_dataset(dataset)
    with pytest.raises(UserError, match="choose one"):
        Corpus.from_dataset(DatasetDict(train=dataset), text="sentence")
    with pytest.raises(UserError, match="name the column"):
        Corpus.from_dataset(dataset, text=None)
