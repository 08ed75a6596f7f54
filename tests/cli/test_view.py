"""`infoflow view`."""

import pytest


def test_view_writes_one_file(infoflow, masked_lm, tmp_path):
    answer = infoflow("view", masked_lm, "the dog sees <script> a cat", "--log=plain")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == "View: view-masked-lm-seed-0.html"
    text = (tmp_path / "view-masked-lm-seed-0.html").read_text(encoding="utf-8")
    assert "How masked-lm-seed-0 attends" in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "The sentence is empty"),
        (["a dog", "un chien"], "takes no translation"),
        (["a dog", "--out=."], "--out must name the HTML file"),
        (["dog " * 600], "takes at most"),
    ],
)
def test_a_mistake_gets_one_message(infoflow, masked_lm, arguments, message, tmp_path):
    answer = infoflow("view", masked_lm, *arguments, "--log=plain")
    assert answer.code == 2
    assert message in answer.err
    assert not list(tmp_path.glob("*.html"))


def test_a_model_without_tokenizer_takes_token_ids(infoflow, masked_lm, tmp_path):
    import shutil

    bare = tmp_path / "bare"
    shutil.copytree(masked_lm, bare, ignore=shutil.ignore_patterns("tokenizer*", "special_tokens*"))
    refused = infoflow("view", bare, "a dog", "--log=plain")
    assert refused.code == 2
    assert "token ids divided by spaces" in refused.err
    answer = infoflow("view", bare, "5 6 7", "--out=ids.html", "--log=plain")
    assert answer.code == 0, answer.err
    assert "Its token ids" in (tmp_path / "ids.html").read_text(encoding="utf-8")
