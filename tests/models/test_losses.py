"""Losses against token-by-token sums in plain Python."""

import math

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from infoflow.foundation import UserError
from infoflow.models import (
    IGNORED,
    decoder_inputs,
    load_model,
    model_inputs,
    pad_rows,
    sequence_losses,
    shift_right,
    start_token_id,
)


def explicit(logits, labels):
    """-log softmax at the label, summed over the row's scored positions."""
    sums, counts = [], []
    for row_logits, row_labels in zip(logits.double(), labels.tolist(), strict=True):
        terms = [
            math.log(sum(math.exp(value) for value in step)) - step[label]
            for step, label in zip(row_logits.tolist(), row_labels, strict=True)
            if label != IGNORED
        ]
        sums.append(sum(terms))
        counts.append(len(terms))
    return torch.tensor(sums), torch.tensor(counts)


def check(losses, logits, labels):
    sums, counts = explicit(logits, labels)
    torch.testing.assert_close(losses.sums, sums.float(), rtol=1e-4, atol=1e-4)
    assert losses.counts.tolist() == counts.tolist()
    assert losses.mean == pytest.approx(float(sums.sum() / counts.sum()), rel=1e-4)
    assert losses.perplexity == pytest.approx(math.exp(losses.mean))


def test_causal_losses_predict_every_token_but_the_first(models, rows, side):
    model = models("gpt2")
    ids, mask = pad_rows(rows, model.pad_token_id, side)
    losses = sequence_losses(model, ids, mask)
    assert losses.counts.tolist() == [6, 3, 5]
    for index, row in enumerate(rows):
        with torch.no_grad():
            logits = model.module(input_ids=torch.tensor([row])).logits
        sums, _ = explicit(logits[:, :-1], torch.tensor([row[1:]]))
        assert float(losses.sums[index]) == pytest.approx(float(sums[0]), rel=1e-4)


def test_causal_loss_is_that_of_hugging_face(models, rows):
    model = models("llama")
    ids = torch.tensor([rows[0]])
    with torch.no_grad():
        expected = float(model.module(input_ids=ids, labels=ids).loss)
    assert sequence_losses(model, ids).mean == pytest.approx(expected, rel=1e-5)


def test_masked_losses_score_given_labels_only(models, rows):
    model = models("bert")
    ids, mask = pad_rows(rows, model.pad_token_id)
    labels = torch.full_like(ids, IGNORED)
    labels[0, 2], labels[2, 0], labels[2, 5] = 7, 8, 9
    with torch.no_grad():
        logits = model.module(**model_inputs(model, ids, mask)).logits
    losses = sequence_losses(model, ids, mask, labels)
    check(losses, logits, labels)
    assert losses.counts.tolist() == [1, 0, 2]


def test_pseudo_likelihood_masks_one_token_at_a_time(models, rows):
    tokenizer = tokenizer_with_specials()
    model = load_model(models("bert").module, tokenizer=tokenizer)
    ids, mask = pad_rows([[1, *rows[1], 2], [1, *rows[0], 2]], model.pad_token_id)
    losses = sequence_losses(model, ids, mask)
    assert losses.counts.tolist() == [4, 7]
    total = 0.0
    for position in range(1, 5):
        masked = torch.tensor([[1, *rows[1], 2]])
        label = int(masked[0, position])
        masked[0, position] = 3
        with torch.no_grad():
            logits = model.module(input_ids=masked).logits[0, position]
        total -= float(logits.log_softmax(-1)[label])
    assert float(losses.sums[0]) == pytest.approx(total, rel=1e-4)


def tokenizer_with_specials():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    specials = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    words = {word: index for index, word in enumerate([*specials, *(f"w{i}" for i in range(36))])}
    core = Tokenizer(WordLevel(words, unk_token="[PAD]"))
    core.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
    )


@pytest.mark.parametrize("family", ["marian", "t5", "encoder-decoder"])
def test_translation_losses_shift_the_target_right(models, rows, family):
    model = models(family)
    ids, mask = pad_rows(rows, model.pad_token_id)
    labels = torch.full((3, 5), IGNORED)
    for index, length in enumerate((5, 2, 4)):
        labels[index, :length] = torch.tensor(rows[0][:length])
    losses = sequence_losses(model, ids, mask, labels)
    start = {"marian": 2, "t5": 0, "encoder-decoder": 1}[family]
    shifted = shift_right(model, labels)
    assert shifted[1].tolist() == [start, *rows[0][:2], model.pad_token_id, model.pad_token_id]
    with torch.no_grad():
        logits = model.module(input_ids=ids, attention_mask=mask, decoder_input_ids=shifted).logits
    check(losses, logits, labels)


@pytest.mark.parametrize("family", ["marian", "bart", "mbart", "t5", "m2m100", "encoder-decoder"])
def test_decoder_input_is_what_hugging_face_makes_of_the_labels(models, rows, family):
    model = models(family)
    ids, labels = torch.tensor([rows[0]]), torch.tensor([[*rows[1], 2, 7]])  # ends with EOS and a language code
    inputs, predicted = decoder_inputs(model, labels)
    assert torch.equal(predicted, labels)
    with torch.no_grad():
        expected = float(model.module(input_ids=ids, labels=labels).loss)
        given = model.module(input_ids=ids, decoder_input_ids=inputs).logits
    assert torch.nn.functional.cross_entropy(given[0], labels[0]).item() == pytest.approx(expected, rel=1e-5)
    assert sequence_losses(model, ids, labels=labels).mean == pytest.approx(expected, rel=1e-5)
    assert (inputs[0, 0] == 7) == (family == "mbart")


def test_a_target_that_begins_with_the_start_token_is_read_from_there(models, rows):
    labels = torch.tensor([[1, *rows[1], 2]])
    inputs, predicted = decoder_inputs(models("encoder-decoder"), labels)
    assert inputs.tolist() == [[1, *rows[1]]]
    assert predicted.tolist() == [[*rows[1], 2]]
    inputs, _ = decoder_inputs(models("bart"), labels)  # its decoder starts with EOS, whatever the target begins with
    assert inputs.tolist() == [[2, 1, *rows[1]]]


@pytest.mark.parametrize("family", ["bart", "encoder-decoder"])
def test_a_start_token_anywhere_goes_before_a_bos_token(models, rows, family):
    model = models(family, fresh=True)
    model.module.config.decoder_start_token_id, model.module.config.bos_token_id = None, 9
    model.module.generation_config.decoder_start_token_id = 4
    assert start_token_id(model) == 4
    assert shift_right(model, torch.tensor([rows[1]])).tolist() == [[4, *rows[1][:-1]]]
    model.module.generation_config.decoder_start_token_id = None
    assert start_token_id(model) == 9


def test_what_cannot_be_scored_is_refused(models, rows, build_module):
    ids = torch.tensor([rows[0]])
    with pytest.raises(UserError, match="scored on target sentences"):
        sequence_losses(models("bart"), ids)
    with pytest.raises(UserError, match="has no tokenizer"):
        sequence_losses(models("bert"), ids)
    with pytest.raises(UserError, match="no language-model head"):
        sequence_losses(load_model(build_module("bert").bert), ids)


def test_no_scored_token_gives_no_number(models, rows):
    model = models("bert")
    ids = torch.tensor([rows[0]])
    losses = sequence_losses(model, ids, labels=torch.full_like(ids, IGNORED))
    assert losses.counts.tolist() == [0]
    assert math.isnan(losses.mean)
