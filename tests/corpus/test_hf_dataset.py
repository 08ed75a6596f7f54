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
    with pytest.raises(UserError, match=r'no column "text"\. Its columns: sentence'):
        Corpus.from_dataset(dataset)
    with pytest.raises(UserError, match="choose one"):
        Corpus.from_dataset(DatasetDict(train=dataset), text="sentence")
    with pytest.raises(UserError, match="name the column"):
        Corpus.from_dataset(dataset, text=None)


def test_a_word_without_a_class_has_an_empty_tag():
    features = Features({"tokens": Sequence(Value("string")), "ner": Sequence(ClassLabel(names=["O", "PER"]))})
    dataset = Dataset.from_dict({"tokens": [["the", "dog", "Rex"]], "ner": [[0, -1, 1]]}, features=features)
    assert Corpus.from_dataset(dataset, text=None, words="tokens", tags=["ner"])[0].tags == {"ner": ["O", "", "PER"]}


def test_numbers_of_words_become_text():
    dataset = Dataset.from_dict({"tokens": [["the", "dog"]], "depth": [[2, 10]]})
    assert Corpus.from_dataset(dataset, text=None, words="tokens", tags=["depth"])[0].tags == {"depth": ["2", "10"]}


@pytest.mark.parametrize("feature", [ClassLabel(names=["bad", "good"]), Value("int64"), Value("string")])
def test_a_label_of_the_sentence_is_no_tag(feature):
    value = "1" if feature == Value("string") else 1
    features = Features({"text": Value("string"), "mood": feature})
    dataset = Dataset.from_dict({"text": ["the dog"], "mood": [value]}, features=features)
    for data in (dataset, dataset.to_iterable_dataset()):
        with pytest.raises(UserError, match=r'"mood" must hold a list with one value per word\. Got "?1'):
            Corpus.from_dataset(data, tags=["mood"])
