"""`infoflow predict`, `predict_words` and `generate`."""

import re

import pytest
import torch
from transformers import BertConfig, BertModel

from infoflow.foundation import UserError
from infoflow.models import TARGET_FOLDER, forward_logits, load_model, model_inputs
from infoflow.studies import generate, predict_words

TEXT = "the old cat sees the"


@pytest.fixture(scope="module")
def folders(matched_models, tmp_path_factory):
    """The models on disk as a study writes them: each with the tokenizer of the translations."""
    path = tmp_path_factory.mktemp("models")
    for name, model in matched_models.items():
        model.module.save_pretrained(path / name)
        model.tokenizer.save_pretrained(path / name)
        matched_models["translation"].target_tokenizer.save_pretrained(path / name / TARGET_FOLDER)
    return path


def test_words_for_each_blank_are_the_model_s(matched_models):
    model = matched_models["masked-lm"]
    frame = predict_words(model, "the ___ cat [MASK]", top=2)
    assert set(frame["layer"]) == {0, 1, 2}
    assert frame.groupby(["blank", "layer", "trained"]).size().tolist() == [2] * 12
    ids = model.tokenizer("the [MASK] cat [MASK]".replace("[MASK]", model.tokenizer.mask_token), return_tensors="pt")
    with torch.no_grad():
        shares = forward_logits(model, model_inputs(model, ids["input_ids"]))[0].softmax(-1)
    places = (ids["input_ids"][0] == model.tokenizer.mask_token_id).nonzero().flatten().tolist()
    for blank, place in enumerate(places, 1):
        best = frame[(frame["blank"] == blank) & (frame["layer"] == 2) & (frame["rank"] == 1) & frame["trained"]]
        assert best["probability"].item() == pytest.approx(shares[place].max().item(), rel=1e-4)
    assert not frame[~frame["trained"]]["probability"].isna().any()


def test_greedy_text_is_the_likeliest_token_each_time(matched_models):
    model = matched_models["causal-lm"]
    ids = model.tokenizer(TEXT)["input_ids"][:-1]
    for _ in range(5):
        with torch.no_grad():
            ids.append(int(forward_logits(model, model_inputs(model, torch.tensor([ids])))[0, -1].argmax()))
    whole = model.tokenizer.decode(ids, skip_special_tokens=True)
    assert whole.startswith(TEXT + generate(model, TEXT, tokens=5))  # it may end earlier
    assert generate(model, TEXT, tokens=5) == generate(model, TEXT, tokens=5, seed=1)


def test_draws_follow_the_seed(matched_models):
    for kind in ("causal-lm", "translation"):
        drawn = [generate(matched_models[kind], TEXT, tokens=12, temperature=1.5, seed=seed) for seed in (0, 0, 1, 2)]
        assert drawn[0] == drawn[1]
        assert len(set(drawn)) > 1


def test_a_text_ends_where_the_model_has_no_more_positions(matched_models):
    model = matched_models["causal-lm"]
    text = " ".join(["dog"] * 40)
    room = model.max_tokens - len(model.tokenizer(text)["input_ids"]) + 1
    written = model.tokenizer(generate(model, text, tokens=1000, temperature=1), add_special_tokens=False)["input_ids"]
    assert len(written) <= room + 1


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("masked-lm", "the cat", "Write ___ where"),
        ("masked-lm", "___ " * 80, "takes at most 64"),
        ("causal-lm", "the ___ cat", "does not see what follows a blank"),
        ("causal-lm", " ", "is empty"),
        ("translation", "dog " * 80, "takes at most 64"),
    ],
)
def test_what_cannot_be_predicted_is_said(matched_models, kind, text, message):
    with pytest.raises(UserError, match=message):
        predict_words(matched_models[kind], text)
    if kind != "masked-lm":
        with pytest.raises(UserError, match=message):
            generate(matched_models[kind], text)


def test_models_that_write_no_text_say_so(matched_models):
    with pytest.raises(UserError, match="a masked LM: give it a text with blanks"):
        generate(matched_models["masked-lm"], TEXT)
    tokenizer = matched_models["masked-lm"].tokenizer
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bare = load_model(BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)), tokenizer=tokenizer)
    with pytest.raises(UserError, match="an encoder without a head"):
        generate(bare, TEXT)
    with pytest.raises(UserError, match="no language-model head"):
        predict_words(bare, "the ___")


def test_the_command_fits_into_a_hundred_columns(infoflow, folders):
    answer = infoflow("predict", folders / "masked-lm", "the ___ cat ___", "--top=9", "--log=plain")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert [line for line in lines if line.startswith("Blank")] == [
        "Blank 1 of 2, by layer (0: embeddings)",
        "Blank 2 of 2, by layer (0: embeddings)",
    ]
    assert re.split(r"  +", lines[1]) == ["layer", "trained", "untrained"]
    assert max(map(len, lines)) <= 100
    # A study writes the tokenizer of its translations next to every model; a masked LM does not predict in it.
    words = {word for line in lines for word in re.findall(r"(\w+) [\d.]+%", line)}
    assert "cat" in words or "dog" in words or "sleeps" in words or "the" in words
    assert not words & {"chat", "chien", "maison", "voit", "vieux", "dort"}


def test_the_command_writes_and_translates(infoflow, folders):
    answer = infoflow("predict", folders / "causal-lm", TEXT, "--tokens=3", "--no-control", "--log=plain")
    assert answer.code == 0, answer.err
    assert answer.out.startswith(TEXT)
    assert "First token, by layer" in answer.out
    assert "untrained" not in answer.out
    answer = infoflow("predict", folders / "translation", TEXT, "--log=plain")
    assert answer.code == 0, answer.err
    assert "First token, by layer" in answer.out


def test_a_blank_for_a_model_that_continues_is_refused_before_it_writes(infoflow, folders):
    answer = infoflow("predict", folders / "causal-lm", "the ___ cat", "--log=plain")
    assert (answer.code, answer.out) == (2, "")
    assert "does not see what follows a blank" in answer.err
