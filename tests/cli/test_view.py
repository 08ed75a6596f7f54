"""`infoflow view`."""

import shutil

import pytest

from infoflow.corpus import generate_grammar
from infoflow.models import StaticConfig, StaticVectors


@pytest.fixture(scope="module")
def folder(matched_models, tmp_path_factory):
    """A model on disk, as a user has it."""
    path = tmp_path_factory.mktemp("models") / "bert-tiny"
    model = matched_models["masked-lm"]
    model.module.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


def test_view_writes_one_file(infoflow, folder, tmp_path):
    answer = infoflow("view", folder, "the dog sees <script> the cat", "--log=plain")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == "View: view-bert-tiny.html"
    text = (tmp_path / "view-bert-tiny.html").read_text(encoding="utf-8")
    assert "How bert-tiny attends" in text
    assert "&lt;script&gt;" in text


def test_a_pair_of_sentences_is_one_page(infoflow, folder, tmp_path):
    answer = infoflow("view", folder, "the dog sees", "--pair=a cat sleeps", "--log=plain")
    assert answer.code == 0, answer.err
    text = (tmp_path / "view-bert-tiny.html").read_text(encoding="utf-8")
    assert '<dt>and then</dt><dd dir="auto">a cat sleeps</dd>' in text
    assert '"segment":1' in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "An argument must not be empty"),
        (["a dog", "un chien"], "takes no translation"),
        (["a dog", "--pair=a cat", "--words=grammar:20"], "Leave one out"),
        (["a dog", "--out=."], "--out must name an HTML file"),
        (["dog " * 600], "takes at most"),
    ],
)
def test_a_mistake_gets_one_message(infoflow, folder, arguments, message, tmp_path):
    answer = infoflow("view", folder, *arguments, "--log=plain")
    assert answer.code == 2
    assert message in answer.err
    assert not list(tmp_path.glob("*.html"))


def test_a_model_without_tokenizer_takes_token_ids(infoflow, folder, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("tokenizer*", "special_tokens*"))
    refused = infoflow("view", bare, "a dog", "--log=plain")
    assert refused.code == 2
    assert "token ids separated by spaces" in refused.err
    answer = infoflow("view", bare, "5 6 7", "--out=ids.html", "--log=plain")
    assert answer.code == 0, answer.err
    assert "Its token ids" in (tmp_path / "ids.html").read_text(encoding="utf-8")


def test_words_are_drawn_with_their_neighbours_in_a_corpus(infoflow, folder, tmp_path):
    answer = infoflow("view", folder, "house <script> dog", "--words=grammar:200", "--log=plain")
    assert answer.code == 0, answer.err
    text = (tmp_path / "view-bert-tiny.html").read_text(encoding="utf-8")
    assert "What is near a word in bert-tiny" in text
    assert "<mark>house</mark>" in text or "<mark>dog</mark>" in text
    refused = infoflow("view", folder, "qwrtz", "--words=grammar:200", "--log=plain")
    assert refused.code == 2
    assert "no word" in refused.err


def test_words_of_a_table_are_in_the_column_that_is_named(infoflow, folder, tmp_path):
    lines = "".join(f"{sentence.text}\n" for sentence in generate_grammar(num=200))
    (tmp_path / "own.csv").write_text("said\n" + lines)
    answer = infoflow("view", folder, "house", "--words=own.csv", "--log=plain")
    assert (answer.code, "Write --text-column NAME" in answer.err) == (2, True)
    answer = infoflow("view", folder, "house", "--words=own.csv", "--text-column=said", "--log=plain")
    assert answer.code == 0, answer.err
    answer = infoflow("view", folder, "the house", "--text-column=said", "--log=plain")
    assert (answer.code, "Got no --words" in answer.err) == (2, True)


def test_static_vectors_have_words_and_no_attention(infoflow, matched_models, tmp_path):
    tokenizer = matched_models["masked-lm"].tokenizer
    StaticVectors(StaticConfig(vocab_size=len(tokenizer), hidden_size=8)).save_pretrained(tmp_path / "static")
    tokenizer.save_pretrained(tmp_path / "static")
    refused = infoflow("view", "static", "the dog", "--log=plain")
    assert refused.code == 2
    assert "it has no layers" in refused.err
    answer = infoflow("view", "static", "house", "--words=grammar:200", "--log=plain")
    assert answer.code == 0, answer.err
    assert "by its own vector" in (tmp_path / "view-static.html").read_text(encoding="utf-8")
