"""BERT's blocks in every layout, so that only the objective differs."""

from typing import Any, ClassVar, final, get_args

from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    ElectraConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    PreTrainedModel,
)

from infoflow.corpus import Vocabulary
from infoflow.models import StaticConfig, StaticVectors

from ._config import ModelConfig, shape_of
from ._family import AbstractFamily, Layout
from ._joint import BidirectionalPair, GeneratorDiscriminator, PairEncoder, SpanEncoder, StudentTeacher


@final
class Bert(AbstractFamily):
    """Hugging Face's BERT layers, with the head of a language model on the last stack."""

    name: ClassVar[str] = "bert"
    layouts: ClassVar[tuple[Layout, ...]] = get_args(Layout)
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {
        "encoder": ("", ""),
        "decoder": ("", ""),
        "encoder-decoder": ("encoder.", "bert."),
        "encoder-pair": ("encoder.", ""),
        "encoder-spans": ("encoder.", ""),
        "student-teacher": ("student.", ""),
        "generator-discriminator": ("discriminator.electra.", "bert."),
        "bidirectional-pair": ("forwards.", ""),
    }
    second_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"bidirectional-pair": ("backwards.", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        if layout == "encoder":
            return BertForMaskedLM(_bert_config(config, vocabulary, layers))
        if layout == "decoder":
            return BertLMHeadModel(_bert_config(config, vocabulary, layers, is_decoder=True))
        if layout == "encoder-pair":
            return PairEncoder(_bert_config(config, vocabulary, layers))
        if layout == "encoder-spans":
            return SpanEncoder(_bert_config(config, vocabulary, layers))
        if layout == "student-teacher":
            return StudentTeacher(_bert_config(config, vocabulary, layers))
        if layout == "generator-discriminator":
            return GeneratorDiscriminator(_electra_config(config, vocabulary, layers))
        if layout == "bidirectional-pair":
            return BidirectionalPair(_bert_config(config, vocabulary, layers, is_decoder=True))
        if layout == "static":  # as wide as the others, and nothing else of theirs
            shape = shape_of(config, vocabulary, layers)
            kept = ("vocab_size", "hidden_size", "max_position_embeddings", "pad_token_id")
            return StaticVectors(StaticConfig(**{name: shape[name] for name in kept}))
        return _encoder_decoder(config, vocabulary, target, layers)

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Its matrices alone: biases come on top."""
        if layout == "static":
            return 2 * vocabulary.size * config.width
        block = config.block_parameters
        subwords, parameters = vocabulary.size, layers * block
        if layout == "student-teacher":
            parameters += layers * block // 2
        if layout == "generator-discriminator":
            parameters += layers * block // 16
        if layout == "bidirectional-pair":
            parameters += layers * block + config.positions * config.width
        if layout == "encoder-decoder":
            subwords, parameters = subwords + target.size, layers * block
            parameters += config.decoder_depth * (block + 4 * config.width**2)
        return parameters + (subwords + config.positions) * config.width


def _encoder_decoder(config: ModelConfig, source: Vocabulary, target: Vocabulary, layers: int) -> EncoderDecoderModel:
    encoder_config = _bert_config(config, source, layers)
    decoder_config = _bert_config(config, target, config.decoder_depth, is_decoder=True, add_cross_attention=True)
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
    return BertConfig(**shape_of(config, vocabulary, layers), **role)


def _electra_config(config: ModelConfig, vocabulary: Vocabulary, layers: int) -> ElectraConfig:
    """ELECTRA's layers compute what BERT's do, under the same names; embeddings are as wide as the stack."""
    return ElectraConfig(**shape_of(config, vocabulary, layers), embedding_size=config.width)
