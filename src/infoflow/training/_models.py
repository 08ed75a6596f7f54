"""Matched models: one block implementation and one initialisation, so that only the objective differs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    PreTrainedModel,
)

from infoflow.foundation import Limits, Share, UserError, check_settings, hash64, require_memory
from infoflow.objectives import AbstractObjective, Vocabulary

Deviation = Annotated[float, Limits(above=0, at_most=10)]
Match = Literal["encoder", "depth"]
_COPIES = 4  # of every weight in training
Activation = Literal["relu", "relu6", "gelu", "gelu_new", "gelu_fast", "quick_gelu", "silu", "swish", "mish", "tanh"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape that the models of a study share."""

    width: Annotated[int, Limits(at_least=1, at_most=65_536)] = 128  # of the residual stream
    layers: Annotated[int, Limits(at_least=1, at_most=1000)] = 6  # of every stack (see `match` of `build_models`)
    heads: Annotated[int, Limits(at_least=1, at_most=1024)] = 8
    feedforward: Annotated[int, Limits(at_least=1, at_most=10**6)] = 512
    activation: Activation = "relu"  # the recipe behind the published comparisons; BERT's own is gelu
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    initializer_range: Deviation = 0.02  # standard deviation of weights and embeddings
    positions: Annotated[int, Limits(at_least=3, at_most=100_000)] = 128  # longest sentence in tokens

    def __post_init__(self) -> None:
        check_settings(self, "model")
        if self.width % self.heads:
            raise UserError(
                "model.width must be a multiple of model.heads: each head has an equal part of it. Got a width of "
                f"{self.width} and {self.heads} heads. Try {max(1, self.width // self.heads) * self.heads}."
            )


def build_models(
    objectives: Sequence[AbstractObjective],
    config: ModelConfig,
    vocabulary: Vocabulary,
    target_vocabulary: Vocabulary | None = None,
    seed: int = 0,
    match: Match = "encoder",
) -> dict[str, PreTrainedModel]:
    """One model per objective, with the same embeddings and blocks on the source side, bit for bit.

    A reference stack is initialised once and copied by parameter name, so a model does not depend on which others are
    built. `match="encoder"` gives every stack `config.layers` layers; `match="depth"` gives single stacks as many as
    the encoder and the decoder of translation have together, and the encoder equals their lower half.
    The global random state is left as it was.

    Raises:
        UserError: Two objectives have one name.
    """
    names = [objective.name for objective in objectives]
    if len(set(names)) < len(names):
        raise UserError(
            f"build_models returns one model per objective name. Got {', '.join(names)}.\n"
            "Call it once for each variant of an objective: with the same seed the variants begin alike."
        )
    single = config.layers * (2 if match == "depth" else 1)
    for objective in objectives:
        _check_memory(objective, config, vocabulary, target_vocabulary, single)
    reference = _seeded(seed, "stack", lambda: BertForMaskedLM(_bert_config(config, vocabulary, single)))
    models = {}
    for objective in objectives:
        model = _seeded(
            seed, "model", lambda kind=objective: _build(kind, config, vocabulary, target_vocabulary, single)
        )
        _copy_source_stack(reference, model)
        models[objective.name] = model.train()
    return models


def _check_memory(
    objective: AbstractObjective,
    config: ModelConfig,
    vocabulary: Vocabulary,
    target_vocabulary: Vocabulary | None,
    single_layers: int,
) -> None:
    """Refuse what cannot be trained here, by its matrices alone: biases and batches come on top."""
    block = 4 * config.width**2 + 2 * config.width * config.feedforward
    if objective.architecture == "encoder-decoder":
        subwords = vocabulary.size + (target_vocabulary or vocabulary).size
        parameters = config.layers * (2 * block + 4 * config.width**2)
    else:
        subwords, parameters = vocabulary.size, single_layers * block
    parameters += (subwords + config.positions) * config.width
    copies = 1 if torch.cuda.is_available() else _COPIES
    require_memory(
        parameters * 4 * copies,
        f"A model of {parameters:,} parameters needs 4 bytes for each, {copies} times (weights, gradients, two moments "
        "of Adam)",
        "Lower model.width, model.layers, model.feedforward or corpus.vocabulary.",
    )


def _build(
    objective: AbstractObjective,
    config: ModelConfig,
    vocabulary: Vocabulary,
    target_vocabulary: Vocabulary | None,
    single_layers: int,
) -> PreTrainedModel:
    if objective.architecture == "encoder":
        return BertForMaskedLM(_bert_config(config, vocabulary, single_layers))
    if objective.architecture == "decoder":
        return BertLMHeadModel(_bert_config(config, vocabulary, single_layers, is_decoder=True))
    return _encoder_decoder(config, vocabulary, target_vocabulary or vocabulary)


def _encoder_decoder(config: ModelConfig, source: Vocabulary, target: Vocabulary) -> EncoderDecoderModel:
    encoder_config = _bert_config(config, source, config.layers)
    decoder_config = _bert_config(config, target, config.layers, is_decoder=True, add_cross_attention=True)
    joint = EncoderDecoderConfig.from_encoder_decoder_configs(encoder_config, decoder_config)
    joint.decoder_start_token_id, joint.pad_token_id, joint.eos_token_id = target.start, target.pad, target.end
    # Built from configs alone the encoder would get a pooler: no gradient, no use, and it consumes random numbers.
    # The stacks take the joint configuration's own parts, so that a setting made on the whole reaches every layer.
    encoder = BertModel(joint.encoder, add_pooling_layer=False)
    model = EncoderDecoderModel(config=joint, encoder=encoder, decoder=BertLMHeadModel(joint.decoder))
    generation: Any = model.generation_config
    generation.decoder_start_token_id, generation.pad_token_id = target.start, target.pad
    generation.bos_token_id, generation.eos_token_id = target.start, target.end
    return model


def _bert_config(config: ModelConfig, vocabulary: Vocabulary, layers: int, **role: Any) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary.size,
        hidden_size=config.width,
        num_hidden_layers=layers,
        num_attention_heads=config.heads,
        intermediate_size=config.feedforward,
        hidden_act=config.activation,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.attention_dropout,
        initializer_range=config.initializer_range,
        max_position_embeddings=config.positions,
        pad_token_id=vocabulary.pad,
        bos_token_id=vocabulary.start,
        eos_token_id=vocabulary.end,
        **role,
    )


def _seeded(seed: int, purpose: str, build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hash64("initialisation", seed, purpose))
        return build()


def _copy_source_stack(reference: PreTrainedModel, model: PreTrainedModel) -> None:
    prefix = "encoder." if isinstance(model, EncoderDecoderModel) else ""
    values = dict(reference.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            in_reference = name.replace(prefix, "bert.", 1) if prefix and name.startswith(prefix) else name
            if in_reference in values and (not prefix or name.startswith(prefix)):
                parameter.copy_(values[in_reference])
