"""Parameter counts of the specification, equal initialisation, and loading by the Auto classes."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertForMaskedLM, EncoderDecoderModel

from infoflow.foundation import UserError
from infoflow.models import save_model
from infoflow.objectives import CausalLM, MaskedLM, Translation, Vocabulary
from infoflow.training import ModelConfig, build_models

OBJECTIVES = [CausalLM(), MaskedLM(), Translation()]
VOCABULARY = Vocabulary(size=1000, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4))
SHAPE = ModelConfig(width=64, layers=6, heads=8, feedforward=256, positions=128)


@pytest.fixture(scope="module")
def models():
    return build_models(OBJECTIVES, SHAPE, VOCABULARY, seed=3)


def count(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts_are_those_of_the_specification(models) -> None:
    assert count(models["masked-lm"]) == 377_640
    assert count(models["causal-lm"]) == 377_640
    assert count(models["translation"]) == 850_600
    assert count(models["translation"].encoder) == 372_352
    assert count(models["translation"].decoder) == 478_248


def test_source_side_is_equal_bit_for_bit(models) -> None:
    masked, causal = models["masked-lm"].state_dict(), models["causal-lm"].state_dict()
    assert masked.keys() == causal.keys()
    assert all(torch.equal(masked[name], causal[name]) for name in masked)
    encoder = models["translation"].encoder.state_dict()
    assert {f"bert.{name}" for name in encoder} == {name for name in masked if name.startswith("bert.")}
    assert all(torch.equal(value, masked[f"bert.{name}"]) for name, value in encoder.items())


def test_initialisation_depends_on_the_seed_alone(models) -> None:
    torch.manual_seed(99)
    before = torch.get_rng_state()
    alone = build_models([Translation()], SHAPE, VOCABULARY, seed=3)["translation"].state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, alone[name]) for name, value in models["translation"].state_dict().items())
    other = build_models([MaskedLM()], SHAPE, VOCABULARY, seed=4)["masked-lm"]
    name = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(other.state_dict()[name], models["masked-lm"].state_dict()[name])


def test_match_depth_doubles_single_stacks_and_keeps_their_lower_half() -> None:
    shape = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=16)
    models = build_models(OBJECTIVES, shape, VOCABULARY, match="depth")
    assert models["masked-lm"].config.num_hidden_layers == 4
    assert models["translation"].config.encoder.num_hidden_layers == 2
    masked = models["masked-lm"].state_dict()
    encoder = models["translation"].encoder.state_dict()
    assert all(torch.equal(value, masked[f"bert.{name}"]) for name, value in encoder.items())


def test_initializer_range_and_activation_are_settings() -> None:
    shape = ModelConfig(width=64, layers=1, heads=2, feedforward=64, initializer_range=0.1, activation="gelu")
    model = build_models([MaskedLM()], shape, VOCABULARY)["masked-lm"]
    assert isinstance(model, BertForMaskedLM)
    assert model.config.hidden_act == "gelu"
    std = model.bert.encoder.layer[0].intermediate.dense.weight.std().item()
    assert std == pytest.approx(0.1, rel=0.05)


def test_causal_model_does_not_see_the_future(models) -> None:
    model = models["causal-lm"].eval()
    tokens = torch.randint(5, 1000, (1, 9))
    changed = tokens.clone()
    changed[0, 6] = 7 + (tokens[0, 6] == 7).long()
    with torch.no_grad():
        one, other = (model(ids, use_cache=False).logits for ids in (tokens, changed))
    assert torch.equal(one[:, :6], other[:, :6])
    assert not torch.equal(one[:, 6:], other[:, 6:])


@pytest.mark.parametrize(
    ("name", "auto"),
    [("masked-lm", AutoModelForMaskedLM), ("causal-lm", AutoModelForCausalLM), ("translation", EncoderDecoderModel)],
)
def test_saved_models_load_with_equal_logits(name: str, auto, models, tmp_path: Path) -> None:
    model = models[name].eval()
    save_model(model, tmp_path)
    # The loader puts back an unused, randomly initialised pooler; it does not touch the logits.
    loaded = auto.from_pretrained(tmp_path).eval()
    inputs = {"input_ids": torch.randint(5, 1000, (3, 9))}
    if name == "translation":
        inputs["decoder_input_ids"] = torch.randint(5, 1000, (3, 7))
        assert (loaded.config.decoder_start_token_id, loaded.config.pad_token_id) == (2, 0)
        assert loaded.generation_config.eos_token_id == 3
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, loaded(**inputs).logits)


def test_one_setting_reaches_every_attention_layer(models) -> None:
    model = models["translation"]
    model.set_attn_implementation("eager")
    modules = [module for module in model.modules() if hasattr(module, "attention_head_size")]
    try:
        assert len(modules) == 18
        assert {module.config._attn_implementation for module in modules} == {"eager"}
    finally:
        model.set_attn_implementation("sdpa")


def test_width_must_be_a_multiple_of_heads() -> None:
    with pytest.raises(UserError, match=r"multiple of model\.heads"):
        ModelConfig(width=100, heads=8)


def test_two_variants_of_one_objective_are_refused() -> None:
    with pytest.raises(UserError, match="Got causal-lm, masked-lm, causal-lm"):
        build_models([CausalLM(), MaskedLM(), CausalLM(token_dropout=0.1)], SHAPE, VOCABULARY)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_that_no_machine_holds_is_refused_before_it_is_built(objective) -> None:
    """Its size is at most what the model would have, and nearly that."""
    huge = ModelConfig(width=65_536, heads=64, layers=4, feedforward=10**6)
    with pytest.raises(UserError, match=r"A model of [\d,]+ parameters needs 4 bytes for each.*GB available"):
        build_models([objective], huge, VOCABULARY)


def test_parameters_are_counted_before_they_are_there(monkeypatch) -> None:
    told = []
    monkeypatch.setattr("infoflow.architectures._build.require_memory", lambda size, what, advice: told.append(size))
    config = ModelConfig(width=64, heads=4, layers=3, feedforward=256)
    for objective in OBJECTIVES:
        (model,) = build_models([objective], config, VOCABULARY).values()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        assert 0.8 * parameters < told[-1] / 16 <= parameters
