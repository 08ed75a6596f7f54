"""Tuning for answers in passages and for texts to write, from end to end."""

import pytest
import transformers
from adaptation.questions import own_tokenizer, town_questions
from adaptation.writing import both_sides, pairs, writer
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from infoflow.adaptation import TaskData, TuneConfig, load_task, make_task, tune
from infoflow.foundation import UserError
from infoflow.models import load_model

CONFIG = TuneConfig(epochs=1, batch_examples=8, learning_rates=(1e-3,), seeds=(0,), max_length=48, device="cpu")
QUESTIONS = town_questions(24, facts=2)
TOKENIZER = own_tokenizer(QUESTIONS)


def _questions() -> TaskData:
    test = town_questions(10, facts=2, seed=1)
    return load_task("towns", train=QUESTIONS, dev=test, test=test)


def test_an_encoder_is_tuned_to_point(tmp_path):
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    tuned = tune(load_model(BertForMaskedLM(config), tokenizer=TOKENIZER), _questions(), CONFIG, tmp_path)
    assert set(tuned.scores["metric"]) == {"f1", "exact_match"}
    assert (tuned.scores.query("main")["metric"] == "f1").all()
    assert len(tuned.answers) == 10
    (one,) = tuned.models
    assert type(transformers.AutoModelForQuestionAnswering.from_pretrained(one.folder)).__name__.startswith("Bert")


def test_a_decoder_for_spans_is_refused(tmp_path):
    config = GPT2Config(vocab_size=len(TOKENIZER), n_embd=16, n_layer=1, n_head=2)
    with pytest.raises(UserError, match="is a decoder"):
        tune(load_model(GPT2LMHeadModel(config), tokenizer=TOKENIZER), _questions(), CONFIG, tmp_path)


@pytest.mark.parametrize("kind", ["bert encoder-decoder", "gpt2 decoder"])
def test_a_model_is_tuned_to_write(tmp_path, kind):
    corpus, test = pairs(24), pairs(10, seed=1)
    tokenizer = both_sides(corpus)
    data = load_task("words", train=corpus, dev=test, test=test)
    task = make_task(data, max_target=8, main="chrf")
    tuned = tune(load_model(writer(kind, tokenizer), tokenizer=tokenizer), data, CONFIG, tmp_path, task=task)
    assert len(tuned.scores.query("main and part == 'test'")) == 1
    (one,) = tuned.models
    auto = transformers.AutoModelForSeq2SeqLM if "encoder" in kind else transformers.AutoModelForCausalLM
    module = auto.from_pretrained(one.folder).eval()
    rows = task.rows(test, tokenizer, 48)
    from infoflow.corpus import Vocabulary

    said = task.predict(module, rows, test, Vocabulary.from_tokenizer(tokenizer), 1000).said
    assert list(tuned.answers.sort_values("example")["said"]) == list(said)
