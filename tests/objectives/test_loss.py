"""Supervised positions only: the result is that of the full logits."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    GPT2LMHeadModel,
)

from infoflow.foundation import UserError, stream
from infoflow.objectives import CausalLM, Example, MaskedLM, Translation, supervised_cross_entropy

SHAPE = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def model_for(objective):
    torch.manual_seed(0)
    if isinstance(objective, MaskedLM):
        return BertForMaskedLM(BertConfig(**SHAPE)).eval()
    decoder = BertConfig(**SHAPE, is_decoder=True, add_cross_attention=isinstance(objective, Translation))
    if isinstance(objective, CausalLM):
        return BertLMHeadModel(decoder).eval()
    return EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**SHAPE), decoder)).eval()


def batch_for(objective, vocabulary):
    generator = stream("sentences")
    examples = []
    for index, (length, target_length) in enumerate([(12, 5), (7, 14), (9, 9), (20, 3)]):
        source = np.array([2, *generator.integers(5, 50, length), 3])
        target = np.array([2, *generator.integers(5, 50, target_length), 3])
        examples.append(
            objective.corrupt(Example(texts=(source,), translation=target), stream("noise", index), vocabulary)
        )
    return objective.collate(examples, vocabulary), examples


@pytest.mark.parametrize("objective", [CausalLM(), MaskedLM(), Translation()])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_loss_is_that_of_the_full_logits_of_each_sentence_alone(objective, label_smoothing, vocabulary) -> None:
    """No padding, no masks, every position projected, and Hugging Face's own forward pass."""
    model = model_for(objective)
    batch, examples = batch_for(objective, vocabulary)
    term = objective.loss(model, batch, batch.noise, label_smoothing)[objective.name]
    expected, count = 0.0, 0
    for example in examples:
        inputs = {"input_ids": torch.tensor(example.input_ids[None])}
        if example.decoder_input_ids is not None:
            inputs["decoder_input_ids"] = torch.tensor(example.decoder_input_ids[None])
        log_p = model(**inputs).logits[0].double().log_softmax(-1)
        for position, label in enumerate(example.labels):
            if label != -100:
                likelihood = (1 - label_smoothing) * log_p[position, label] + label_smoothing * log_p[position].mean()
                expected, count = expected - likelihood.item(), count + 1
    assert term.count == count == batch.supervised_tokens
    assert objective.counts(batch) == {objective.name: count}
    assert term.total.item() == pytest.approx(expected, rel=1e-5)


def test_gradients_equal_those_of_the_full_projection(vocabulary) -> None:
    objective = MaskedLM()
    model = model_for(objective)
    batch, _ = batch_for(objective, vocabulary)
    objective.loss(model, batch, batch.noise)["masked-lm"].total.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum").backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-5)


def test_other_families_work_and_headless_models_are_refused() -> None:
    labels = torch.tensor([[5, -100, 6]])
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)).eval()
    hidden = model.transformer(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state
    assert supervised_cross_entropy(model, hidden, labels).count == 2
    with pytest.raises(UserError, match="has no language-modelling head"):
        supervised_cross_entropy(model.transformer, hidden, labels)


def test_nothing_supervised_costs_nothing() -> None:
    model = model_for(MaskedLM())
    term = supervised_cross_entropy(model, torch.zeros(1, 3, 16), torch.full((1, 3), -100))
    assert (term.count, term.total.item()) == (0, 0.0)
