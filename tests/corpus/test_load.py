import pytest

from infoflow.corpus import Corpus, generate_grammar, load_corpus
from infoflow.foundation import UserError


def test_grammar_by_name():
    assert load_corpus("grammar:30", seed=4).digest == generate_grammar(30, seed=4).digest
    assert len(load_corpus("grammar", num=7)) == 7
    with pytest.raises(UserError, match="grammar:SIZE"):
        load_corpus("grammar:many")


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.txt", "one\ttwo\n", {"text"}),
        ("a.en", "one\n", {"text"}),
        ("a.tsv", "one\ttwo\n", {"text", "translation"}),
        ("a.tagged", "one\tX\n", {"text", "words", "tag"}),
        ("a.CONLLU", "1\tx\tx\tX\t_\t_\t0\troot\t_\t_\n",
         {"text", "words", "upos", "head", "deprel", "lemma", "xpos"}),
    ],
)  # fmt: skip
def test_path_by_extension(write, name, content, columns, zipped):
    assert load_corpus(write(name + zipped, content)).columns == columns


def test_options_go_to_the_reader(write):
    assert load_corpus(write("a.tsv", "one\ttwo\n"), columns=(2, 1))[0].text == "two"


def test_two_files(write):
    source, target = write("t.en", "a\n"), write("t.de", "b\n")
    assert load_corpus(f"{source},{target}").digest == Corpus.from_parallel(source, target).digest
    with pytest.raises(UserError, match="No corpus file"):
        load_corpus(f"{source},{target}x")


def test_unknown_name():
    with pytest.raises(UserError, match=r"No corpus gramar: neither a file .* nor a name"):
        load_corpus("gramar")


def test_hub_without_network(monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(UserError, match="could not be loaded from the hub: no network"):
        load_corpus("hf:wmt:test")


def test_hub_split_and_columns(monkeypatch):
    from datasets import Dataset

    asked = []

    def load_dataset(path, config, split):
        asked.append((path, config, split))
        return Dataset.from_dict({"sentence": ["one"]})

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert load_corpus("hf:glue:test", config="sst2", text="sentence")[0].text == "one"
    assert asked == [("glue", "sst2", "test")]
