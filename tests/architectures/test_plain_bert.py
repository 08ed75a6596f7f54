"""BERT without the transform of its head: logits written out, the values it begins with, what is read again."""

import pytest
import torch
import torch.nn.functional as F
from objectives.test_every_objective import batch_for
from objectives.zoo import VOCABULARY, mixed
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from infoflow.architectures import FAMILIES, ModelConfig, build
from infoflow.heads import prune
from infoflow.models import load_model, save_pruned
from infoflow.objectives import make_objective

SHAPE = ModelConfig(width=16, layers=3, heads=2, feedforward=32, positions=64, decoder_layers=1)
LAYOUTS = FAMILIES["plain-bert"].layouts
IDS = torch.tensor([[5, 8, 9, 7], [6, 6, 10, 11]])


def made(layout: str, family: str = "plain-bert", seed: int = 3):
    return build(family, layout, SHAPE, VOCABULARY, seed=seed).eval()


def inputs(layout: str) -> dict[str, torch.Tensor]:
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS.flip(1)} if layout == "encoder-decoder" else {})


def written_out(model, layout: str) -> torch.Tensor:
    """W h + b of the top layer's states."""
    stack = model.decoder if layout == "encoder-decoder" else model
    out = model(**inputs(layout), output_hidden_states=True)
    top = (out.decoder_hidden_states if layout == "encoder-decoder" else out.hidden_states)[-1]
    return F.linear(top, stack.bert.embeddings.word_embeddings.weight, stack.cls.predictions.bias)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_are_the_top_layer_s_states_times_the_embeddings(layout):
    model = made(layout)
    with torch.no_grad():
        torch.nn.init.normal_((model.decoder if layout == "encoder-decoder" else model).cls.predictions.bias)
        torch.testing.assert_close(model(**inputs(layout)).logits, written_out(model, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_but_the_head_begins_as_bert_bit_for_bit(layout):
    plain, bert = (dict(made(layout, family).named_parameters()) for family in ("plain-bert", "bert"))
    source = [name for name in plain if name.startswith(("bert.", "encoder."))]
    assert len(source) > 40
    assert all(torch.equal(plain[name], bert[name]) for name in source)
    assert {name for name in bert if name not in plain} == {name for name in bert if "predictions.transform." in name}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_saved_is_read_again(layout, tmp_path):
    model = made(layout)
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path).module
    assert type(again) is type(model)
    assert load_model(tmp_path).task == {"encoder": "masked-lm", "decoder": "causal-lm"}.get(layout, "seq2seq")
    with torch.no_grad():
        assert torch.equal(again(**inputs(layout)).logits, model(**inputs(layout)).logits)


def test_blocks_alone_are_read_again(tmp_path):
    """As an aligned encoder is saved."""
    blocks = made("encoder").bert
    blocks.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert again.task == "encoder"
    with torch.no_grad():
        assert torch.equal(again.module(IDS).last_hidden_state, blocks(IDS).last_hidden_state)


@pytest.mark.parametrize(("layout", "auto"), [("encoder", AutoModelForMaskedLM), ("decoder", AutoModelForCausalLM)])
def test_transformers_itself_builds_no_transform(layout, auto, tmp_path):
    model = made(layout)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(auto.from_pretrained(tmp_path)(**inputs(layout)).logits, model(**inputs(layout)).logits)


@pytest.mark.parametrize("name", ["masked-lm", "causal-lm"])
@torch.no_grad()
def test_a_training_s_loss_is_that_of_the_logits(name):
    """Written out for each text by itself, without padding."""
    objective = make_objective(name)
    model = made(objective.layout)
    texts = [mixed(n, n) for n in (17, 31, 24)]
    batch = batch_for(objective, texts)
    (found,) = objective.loss(model, batch, batch.noise).values()
    expected, count = 0.0, 0
    for ids, mask, labels in zip(batch.input_ids, batch["attention_mask"].bool(), batch["labels"], strict=True):
        top = model.bert(ids[mask][None]).last_hidden_state[0]
        logits = F.linear(top, model.bert.embeddings.word_embeddings.weight, model.cls.predictions.bias)
        supervised = labels[mask] != -100
        expected += float(F.cross_entropy(logits[supervised], labels[mask][supervised], reduction="sum"))
        count += int(supervised.sum())
    assert found.count == count > 3
    assert float(found.total) == pytest.approx(expected, rel=1e-5)


def test_a_pruned_model_is_read_again(tmp_path):
    made("encoder").save_pretrained(tmp_path / "whole")
    smaller = prune(load_model(tmp_path / "whole"), frozenset({("encoder", "self", 0, 1), ("encoder", "self", 2, 0)}))
    save_pruned(smaller, tmp_path / "pruned")
    again = load_model(tmp_path / "pruned")
    with torch.no_grad():
        torch.testing.assert_close(again.module(IDS).logits, smaller.module(IDS).logits)
    assert not any("transform" in name for name, _ in again.module.named_parameters())
