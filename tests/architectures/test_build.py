"""Families and layouts: one initialisation, names that are known, and a family of one's own by one line."""

import dataclasses

import pytest
import torch
from transformers import BertForMaskedLM, BertLMHeadModel, EncoderDecoderModel, GPT2Config, GPT2LMHeadModel

from infoflow.architectures import FAMILIES, AbstractFamily, ModelConfig, build
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError, digest
from infoflow.objectives import CausalLM, MaskedLM
from infoflow.training import build_models

SOURCE, TARGET = (Vocabulary(size=size, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4)) for size in (60, 50))
SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=16)
CLASSES = {"encoder": BertForMaskedLM, "decoder": BertLMHeadModel, "encoder-decoder": EncoderDecoderModel}


def parameters_of(layout: str, **options) -> dict[str, torch.Tensor]:
    return dict(build("bert", layout, SHAPE, SOURCE, TARGET, **options).named_parameters())


@pytest.mark.parametrize("match", ["encoder", "depth"])
def test_every_layout_begins_with_the_values_of_the_first(match) -> None:
    reference = parameters_of("encoder", seed=5, match=match)
    decoder = parameters_of("decoder", seed=5, match=match)
    assert all(torch.equal(decoder[name], value) for name, value in reference.items())
    joint = parameters_of("encoder-decoder", seed=5, match=match)
    shared = [name for name in joint if name.startswith("encoder.")]
    assert shared
    assert all(torch.equal(joint[name], reference["bert." + name.removeprefix("encoder.")]) for name in shared)
    inner = "decoder.bert.encoder.layer.0.attention.self.query.weight"  # the decoder draws its own
    assert not torch.equal(joint[inner], reference[inner.removeprefix("decoder.")])


def test_layouts_are_the_classes_of_hugging_face_and_know_their_vocabularies() -> None:
    for layout, kind in CLASSES.items():
        model = build("bert", layout, SHAPE, SOURCE, TARGET)
        assert type(model) is kind
        assert model.training
    assert model.encoder.config.vocab_size == 60
    assert model.decoder.config.vocab_size == 50
    assert build("bert", "encoder-decoder", SHAPE, SOURCE).decoder.config.vocab_size == 60


def test_a_shallow_decoder_leaves_the_encoder_as_it_is() -> None:
    deep, shallow, told = (
        build("bert", "encoder-decoder", dataclasses.replace(SHAPE, decoder_layers=layers), SOURCE, TARGET)
        for layers in (0, 1, 2)
    )
    assert (deep.decoder.config.num_hidden_layers, shallow.decoder.config.num_hidden_layers) == (2, 1)
    values, same = dict(deep.encoder.named_parameters()), told.state_dict()
    assert all(torch.equal(values[name], value) for name, value in shallow.encoder.named_parameters())
    assert all(torch.equal(same[name], value) for name, value in deep.state_dict().items())


def test_single_stacks_are_as_deep_as_both_stacks_of_the_other_if_so_asked() -> None:
    config = dataclasses.replace(SHAPE, layers=3, decoder_layers=1)
    assert build("bert", "encoder", config, SOURCE, match="depth").config.num_hidden_layers == 4
    assert build("bert", "encoder", config, SOURCE).config.num_hidden_layers == 3


@pytest.mark.parametrize(("width", "deviation"), [(768, 0.02), (64, 0.0692820), (192, 0.04)])
def test_the_first_weights_spread_by_the_width_if_so_asked(width, deviation) -> None:
    config = dataclasses.replace(SHAPE, width=width, initializer_range=0.0)
    assert config.deviation == pytest.approx(deviation, abs=1e-6)
    weight = build("bert", "encoder", config, SOURCE).bert.encoder.layer[0].attention.self.query.weight
    assert float(weight.detach().std()) == pytest.approx(deviation, rel=4 / (2 * width**2) ** 0.5)  # 4 standard errors


def test_settings_that_came_later_count_in_keys_only_where_they_say_something() -> None:
    plain = {field.name: getattr(SHAPE, field.name) for field in dataclasses.fields(SHAPE)}
    for field in dataclasses.fields(SHAPE):
        if field.metadata.get("later"):
            del plain[field.name]
    assert "width" in plain
    assert "decoder_layers" not in plain
    assert digest(SHAPE) == digest(plain)
    assert digest(dataclasses.replace(SHAPE, decoder_layers=1)) == digest({**plain, "decoder_layers": 1})


class Gpt2(AbstractFamily):
    name = "gpt2"
    layouts = ("decoder",)
    source_stack = {"decoder": ("", "")}  # noqa: RUF012 (a family of the test's own)

    def build(self, layout, config, vocabulary, target, layers):
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary.size,
                n_embd=config.width,
                n_layer=layers,
                n_head=config.heads,
                n_inner=config.feedforward,
                n_positions=config.positions,
                bos_token_id=vocabulary.start,
                eos_token_id=vocabulary.end,
            )
        )


def test_a_family_of_one_s_own_is_one_class_and_one_line(monkeypatch) -> None:
    monkeypatch.setitem(FAMILIES, "gpt2", Gpt2())
    model = build_models([CausalLM()], SHAPE, SOURCE, family="gpt2", match="depth", seed=3)["causal-lm"]
    assert isinstance(model, GPT2LMHeadModel)
    assert model.config.n_layer == 4
    again = build("gpt2", "decoder", SHAPE, SOURCE, match="depth", seed=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    with pytest.raises(UserError, match=r'gpt2 has no layout "encoder"\. It has: decoder'):
        build_models([MaskedLM()], SHAPE, SOURCE, family="gpt2")


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(UserError, match=r'No family of models is called "brt"\. Did you mean bert\?'):
        build("brt", "encoder", SHAPE, SOURCE)
