"""Texts to read and to write fit into the positions of a model that writes."""

import dataclasses
import json
from itertools import pairwise

import pytest
import torch
from adaptation.small_task import WORDS, small_data, small_model, small_module, small_tokenizer
from transformers import BartForConditionalGeneration, GPT2LMHeadModel

from infoflow.adaptation import Generation, TuneConfig, load_task, load_tuned, make_task, tune
from infoflow.corpus import Corpus
from infoflow.foundation import PlainDisplay, UserError, use_display
from infoflow.models import load_model
from infoflow.objectives import CausalLM, PrefixDecoder

CONFIG = TuneConfig(epochs=1, batch_examples=4, learning_rates=(1e-3,), seeds=(0,), device="cpu")


def _few_positions(family: str, positions: int = 32):
    """A writer with random weights, which ends no text soon."""
    config = small_module(family).config
    config.update({"n_positions" if family == "gpt2" else "max_position_embeddings": positions})
    kind = {"gpt2": GPT2LMHeadModel, "bart": BartForConditionalGeneration}[family]
    return load_model(kind(config).eval(), small_tokenizer())


def _data(source: int, target: int):
    texts = [(" ".join([word] * source), " ".join([other] * target)) for word, other in pairwise(WORDS)]
    corpus = Corpus.from_sentences(texts).select(range(12))
    return load_task("copies", train=corpus, dev=corpus, test=corpus)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [(19, 3), (40, 40), (3, 40)])
@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_what_a_model_has_no_positions_for_is_cut(family, source, target, tmp_path):
    data = _data(source, target)
    (one,) = tune(_few_positions(family), data, CONFIG, tmp_path).models
    assert isinstance(one.task, Generation)
    assert one.task.max_target == (16 if family == "gpt2" else 31)  # BART reads its own start before [CLS]
    assert one.max_length == (17 if family == "gpt2" else 32)
    assert load_tuned(one.folder).score(data.test, data.train)


@pytest.mark.slow
def test_texts_to_write_may_be_shorter_or_longer(tmp_path, capsys):
    data = _data(5, 5)
    with use_display(PlainDisplay()):
        (one,) = tune(_few_positions("gpt2"), data, dataclasses.replace(CONFIG, max_target=8), tmp_path / "8").models
        assert "target texts have" not in capsys.readouterr().err
        tune(_few_positions("gpt2"), data, CONFIG, tmp_path)
    assert (one.task.max_target, one.max_length) == (8, 25)  # type: ignore[attr-defined]
    assert one.facts["recipe"]["max_target"] == 8
    assert "target texts have at most 16 tokens, since gpt2 has 32 positions" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "reads"), [("encoder-decoder", True), ("gpt2", True), ("causal-bert", True), ("bart", False)]
)
def test_a_begin_that_is_read_is_not_asked_for(family, reads, tmp_path):
    """The loss of an update is divided by the tokens that are asked for: without [CLS] where the decoder reads it."""
    (one,) = tune(small_model(family), _data(5, 5), CONFIG, tmp_path).models
    assert one.task.begin_is_read == reads  # type: ignore[attr-defined]
    assert ("begin_is_read" in one.facts["task"]) == reads


def _pretrained_for_prefixes(folder):
    """A decoder as `training.train` leaves one, as far as tuning asks."""
    model = small_model("gpt2")
    model.module.save_pretrained(folder)
    model.require_tokenizer().save_pretrained(folder)
    facts = {"key": {"objective": "prefix-lm-decoder"}}
    (folder / "training.json").write_text(json.dumps(facts))


@pytest.mark.slow
def test_a_prefix_language_model_sees_the_source_from_both_sides(tmp_path):
    _pretrained_for_prefixes(tmp_path)
    data = _data(3, 3)
    (one,) = tune(tmp_path, data, CONFIG, tmp_path / "out").models
    assert one.task.two_sided  # type: ignore[attr-defined]
    assert make_task(data, trained=PrefixDecoder()).two_sided
    assert not make_task(data, trained=PrefixDecoder(), two_sided=False).two_sided
    assert not make_task(data, trained=CausalLM()).two_sided
    assert make_task(small_data(24), trained=PrefixDecoder()) == make_task(small_data(24))


def test_a_direct_call_writes_within_the_positions():
    data = _data(21, 3)
    model, task, tokenizer = _few_positions("gpt2"), make_task(data), small_tokenizer()
    with torch.no_grad():
        model.module.get_input_embeddings().weight[tokenizer.sep_token_id] = 0.0  # no text ends
    rows = task.rows(data.test, tokenizer, 32)
    from infoflow.corpus import Vocabulary

    found = task.predict(model.module, rows, data.test, Vocabulary.from_tokenizer(tokenizer), 1000)
    assert len(found.said) == len(data.test)


def test_texts_to_write_have_a_length_where_texts_are_written():
    with pytest.raises(UserError, match=r"tune\.max_target only applies to generation\. Got 8"):
        tune(small_model(), small_data(24), TuneConfig(max_target=8))


def test_recipes_without_it_keep_their_key():
    assert "max_target" not in CONFIG.key()
    assert dataclasses.replace(CONFIG, max_target=9).key()["max_target"] == 9
