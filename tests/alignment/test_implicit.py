"""The implicit alignment: another encoder under the decoder."""

import dataclasses

import pytest
import torch
from transformers import EncoderDecoderModel

from infoflow.alignment import ImplicitConfig, align_implicit, encoder_of, transplanted
from infoflow.models import load_model, translate

FAST = ImplicitConfig(learning_rate=1e-3, batch_sentences=8, max_length=32)


def moved(before, after, prefix):
    """Names under `prefix` whose weights differ."""
    pairs = [(name, tensor, after[name]) for name, tensor in before.items() if name.startswith(prefix)]
    assert pairs
    return {name for name, first, second in pairs if not torch.equal(first, second)}


def weights(module):
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def test_the_decoder_reads_the_other_encoder(masked, translator):
    joined = transplanted(masked, translator)
    ids = torch.tensor([[2, 7, 8, 3]])
    states = encoder_of(masked)(input_ids=ids).last_hidden_state
    expected = translator.module(encoder_outputs=(states,), decoder_input_ids=ids).logits
    torch.testing.assert_close(joined.module(input_ids=ids, decoder_input_ids=ids).logits, expected)
    assert joined.target_tokenizer is translator.target_tokenizer


def test_fine_tuning_lowers_the_loss_and_leaves_both_models_alone(masked, translator, parallel_corpus, tmp_path):
    before = weights(masked.module), weights(translator.module)
    config = dataclasses.replace(FAST, epochs=4)
    result = align_implicit(masked, translator, parallel_corpus, tmp_path / "out", config)
    for model, old in zip((masked, translator), before, strict=True):
        assert not moved(old, weights(model.module), "")
    assert loss(result, parallel_corpus) < 0.9 * loss(transplanted(masked, translator), parallel_corpus)
    again = align_implicit(masked, translator, parallel_corpus, tmp_path / "out", config)
    assert not moved(weights(result.module), weights(again.module), "")
    assert isinstance(load_model(tmp_path / "out" / "model").module, EncoderDecoderModel)
    assert len(translate(result, ["the cat sees"], beams=2)) == 1


def loss(model, corpus):
    """Nats per token of the translation, sentence by sentence."""
    total, count = 0.0, 0
    for sentence in corpus:
        source = model.tokenizer(sentence.text, return_tensors="pt").input_ids
        target = model.target_tokenizer(sentence.translation, return_tensors="pt").input_ids
        with torch.no_grad():
            logs = model.module(input_ids=source, decoder_input_ids=target[:, :-1]).logits.log_softmax(-1)
        total -= float(logs.gather(-1, target[:, 1:, None]).sum())
        count += target.shape[1] - 1
    return total / count


@pytest.mark.parametrize(
    ("freeze", "still", "trained"),
    [
        (("embeddings",), "encoder.embeddings.word_embeddings", "encoder.encoder."),
        (("encoder",), "encoder.encoder.", "encoder.embeddings.word_embeddings"),
        (("embeddings", "encoder"), "encoder.", "decoder."),
        (("decoder",), "decoder.", "encoder."),
        (("embeddings", "decoder"), "decoder.", "encoder.encoder."),
    ],
)
def test_frozen_parts_stay(masked, translator, parallel_corpus, tmp_path, freeze, still, trained):
    start = weights(transplanted(masked, translator).module)
    config = dataclasses.replace(FAST, freeze=freeze, batch_sentences=20)
    end = weights(align_implicit(masked, translator, parallel_corpus, tmp_path / "out", config).module)
    assert not moved(start, end, still)
    assert moved(start, end, trained)


def test_a_reinitialised_decoder_starts_from_other_weights(masked, translator, parallel_corpus, tmp_path, monkeypatch):
    modules = {}

    def keep(objective, config, data, module, out):
        modules["module"] = weights(module)
        module.save_pretrained(out / "model")
        data.tokenizer.save_pretrained(out / "model")

    monkeypatch.setattr("infoflow.subjects.alignment.measures._both_ways.train", keep)
    config = dataclasses.replace(FAST, reinitialise_decoder=True)
    align_implicit(masked, translator, parallel_corpus, tmp_path / "out", config)
    start = weights(transplanted(masked, translator).module)
    assert len(moved(start, modules["module"], "decoder.")) > 10
    assert not moved(start, modules["module"], "encoder.")
