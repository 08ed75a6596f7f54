"""BERT's blocks in every layout, so that only the objective differs."""

from typing import Any, ClassVar, final, get_args

from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    ElectraForPreTraining,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    PreTrainedModel,
)

from infoflow.corpus import Vocabulary
from infoflow.models import StaticConfig, StaticVectors

from ._config import ModelConfig, shape_of
from ._encoders import AbstractEncoderFamily, electra_config
from ._family import Layout
from ._joint import BidirectionalPair

BESIDE_AN_ENCODER = {"is_decoder": True, "add_cross_attention": True}


@final
class Bert(AbstractEncoderFamily):
    """Hugging Face's BERT layers, with the head of a language model on the last stack.

    Its discriminator is ELECTRA's, whose layers equal BERT's.
    """

    name: ClassVar[str] = "bert"
    layouts: ClassVar[tuple[Layout, ...]] = get_args(Layout)
    base: ClassVar[str] = "bert"
    base_of_detector: ClassVar[str] = "electra"
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {
        "decoder": ("", ""),
        "encoder-decoder": ("encoder.", "bert."),
        "bidirectional-pair": ("forwards.", ""),
    }
    second_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"bidirectional-pair": ("backwards.", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        if layout == "decoder":
            return _decoder(config, vocabulary, layers)
        if layout == "bidirectional-pair":
            return BidirectionalPair(
                _decoder(config, vocabulary, layers), _decoder(config, vocabulary, layers), head="cls"
            )
        if layout == "static":  # as wide as the others, with nothing else in common
            shape = shape_of(config, vocabulary, layers)
            kept = ("vocab_size", "hidden_size", "max_position_embeddings", "pad_token_id")
            return StaticVectors(StaticConfig(**{name: shape[name] for name in kept}))
        if layout == "encoder-decoder":
            first = _bert_config(config, vocabulary, layers)
            second = _bert_config(config, target, config.decoder_depth, **BESIDE_AN_ENCODER)
            return encoder_decoder(first, second, BertLMHeadModel, target)
        return super().build(layout, config, vocabulary, target, layers)

    def masked_lm(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """See `AbstractEncoderFamily.masked_lm`."""
        return BertForMaskedLM(_bert_config(config, vocabulary, layers))

    def detector(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """See `AbstractEncoderFamily.detector`."""
        return ElectraForPreTraining(electra_config(config, vocabulary, layers, config.width))

    def encoder_parameters(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> int:
        """Parameters of the matrices, without biases."""
        return layers * config.block_parameters + (vocabulary.size + config.positions) * config.width

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Parameters of the matrices, without biases."""
        if layout == "static":
            return 2 * vocabulary.size * config.width
        parameters = super().num_parameters(layout, config, vocabulary, target, layers)
        if layout == "bidirectional-pair":
            parameters += layers * config.block_parameters + config.positions * config.width
        if layout == "encoder-decoder":
            parameters += config.decoder_depth * (config.block_parameters + 4 * config.width**2)
            parameters += target.size * config.width
        return parameters


def _decoder(config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
    return BertLMHeadModel(_bert_config(config, vocabulary, layers, is_decoder=True))


def encoder_decoder(
    encoder: BertConfig, decoder: BertConfig, head: type[BertLMHeadModel], target: Vocabulary
) -> EncoderDecoderModel:
    """An encoder-decoder with cross-attention and the head of the class `head`."""
    joint = EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    joint.decoder_start_token_id, joint.pad_token_id, joint.eos_token_id = target.start, target.pad, target.end
    # Built from configs alone, the encoder would get an unused pooler that consumes random numbers. The stacks use the
    # joint configuration's own parts, so that a setting on the whole reaches every layer.
    first = BertModel(joint.encoder, add_pooling_layer=False)
    model = EncoderDecoderModel(config=joint, encoder=first, decoder=head(joint.decoder))
    generation: Any = model.generation_config
    generation.decoder_start_token_id, generation.pad_token_id = target.start, target.pad
    generation.bos_token_id, generation.eos_token_id = target.start, target.end
    return model


def _bert_config(config: ModelConfig, vocabulary: Vocabulary, layers: int, **role: Any) -> BertConfig:
    return BertConfig(**shape_of(config, vocabulary, layers), **role)
