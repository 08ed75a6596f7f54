"""BERT's blocks in every layout, so that only the objective differs; ALBERT; BERT without its head."""

from abc import abstractmethod
from typing import Any, ClassVar, final, get_args

from infoflow._transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForTokenClassification,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    ElectraConfig,
    ElectraForPreTraining,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    PreTrainedModel,
)
from infoflow.corpus import Vocabulary
from infoflow.models import PlainBertConfig, PlainBertForMaskedLM, PlainBertLMHeadModel, StaticConfig, StaticVectors

from ._family import AbstractFamily, EncoderLayout, Layout, ModelConfig, shape_of


class AbstractEncoderFamily(AbstractFamily):
    """A family with a masked LM, which supports every encoder layout.

    A pooler and a head for pairs, a head for span boundaries, or a student of half the depth is added to the family's
    own masked LM; a discriminator consists of the family's blocks with one logit per token. The generator is small and
    uses ELECTRA's blocks in every family, so that all families have the same kind of noise.
    """

    layouts: ClassVar[tuple[Layout, ...]] = get_args(EncoderLayout)
    base: ClassVar[str]  # module of the blocks in the masked LM
    base_of_detector: ClassVar[str] = ""  # and in the discriminator, if different

    def __init_subclass__(cls) -> None:
        cls.source_stack = {
            "encoder": ("", ""),
            "encoder-pair": ("encoder.", ""),
            "encoder-spans": ("encoder.", ""),
            "student-teacher": ("student.", ""),
            "generator-discriminator": (f"discriminator.{cls.base_of_detector or cls.base}.", f"{cls.base}."),
            **cls.__dict__.get("source_stack", {}),
        }

    @abstractmethod
    def masked_lm(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """The blocks with a head for masked tokens, with weights from torch's global generator."""

    @abstractmethod
    def detector(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """The blocks with a head of one logit per token, with weights from torch's global generator."""

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        from . import _compositions as compositions  # slow import

        if layout == "generator-discriminator":
            discriminator = self.detector(config, vocabulary, layers)
            words = discriminator.get_input_embeddings().embedding_dim
            generator = compositions.generator_for(
                electra_config(config, vocabulary, layers, embedding_size=int(words))
            )
            return compositions.GeneratorDiscriminator(discriminator, generator)
        if layout == "student-teacher":
            student = self.masked_lm(config, vocabulary, max(layers // 2, 1))
            return compositions.StudentTeacher(student, self.masked_lm(config, vocabulary, layers))
        encoder = self.masked_lm(config, vocabulary, layers)
        if layout == "encoder":
            return encoder
        pairs = layout == "encoder-pair"
        return compositions.PairEncoder(encoder) if pairs else compositions.SpanEncoder(encoder)


def electra_config(config: ModelConfig, vocabulary: Vocabulary, layers: int, embedding_size: int) -> ElectraConfig:
    """A configuration of ELECTRA, whose layers equal BERT's, under the same names."""
    return ElectraConfig(**shape_of(config, vocabulary, layers), embedding_size=embedding_size)


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
        if layout == "decoder":
            return _decoder(config, vocabulary, layers)
        if layout == "bidirectional-pair":
            from ._compositions import BidirectionalPair  # slow import

            return BidirectionalPair(
                _decoder(config, vocabulary, layers), _decoder(config, vocabulary, layers), head="cls"
            )
        if layout == "static":  # as wide as the other models, with nothing else in common
            shape = shape_of(config, vocabulary, layers)
            kept = ("vocab_size", "hidden_size", "max_position_embeddings", "pad_token_id")
            return StaticVectors(StaticConfig(**{name: shape[name] for name in kept}))
        if layout == "encoder-decoder":
            first = _bert_config(config, vocabulary, layers)
            second = _bert_config(config, target, config.decoder_depth, **BESIDE_AN_ENCODER)
            return encoder_decoder(first, second, BertLMHeadModel, target)
        return super().build(layout, config, vocabulary, target, layers)

    def masked_lm(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        return BertForMaskedLM(_bert_config(config, vocabulary, layers))

    def detector(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        return ElectraForPreTraining(electra_config(config, vocabulary, layers, config.width))


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


_FACTOR = 2  # the embeddings' inner width is this fraction of the model's


@final
class Albert(AbstractEncoderFamily):
    """Hugging Face's ALBERT, with its two techniques ([@lan2020albert]).

    `model.share_layers`: all layers share parameters, so no parameter belongs to a single layer, and a student applies
    its teacher's layer half as often. `model.embedding_width` is E in embeddings of V × E + E × d parameters, by
    default d / 2: at width 64 it is 32, as in the matched comparison (in the published base model it is 128 at width
    768). ALBERT's own objective is `masked-lm-sop`.
    """

    name: ClassVar[str] = "albert"
    base: ClassVar[str] = "albert"
    differs: ClassVar[str] = "all layers share one set of weights, and the embeddings are in two factors"

    def masked_lm(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        return AlbertForMaskedLM(_albert_config(config, vocabulary, layers))

    def detector(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        head = {"num_labels": 1, "classifier_dropout_prob": 0.0}  # like ELECTRA's head, but without dropout
        return AlbertForTokenClassification(_albert_config(config, vocabulary, layers, **head))


def _albert_config(config: ModelConfig, vocabulary: Vocabulary, layers: int, **head: Any) -> AlbertConfig:
    return AlbertConfig(
        **shape_of(config, vocabulary, layers),
        embedding_size=config.embedding_width or max(config.width // _FACTOR, 1),
        num_hidden_groups=1 if config.share_layers else layers,
        **head,
    )


@final
class PlainBert(AbstractFamily):
    """`bert` with logits W h + b of the top layer's states for all objectives, as in the published comparison.

    BERT transforms them first (a dense layer, an activation, a norm), so its language models may compute a part of the
    prediction that no layer's states show. A translation encoder has no such transform. Blocks start with exactly the
    values of `bert`.
    """

    name: ClassVar[str] = "plain-bert"
    layouts: ClassVar[tuple[Layout, ...]] = ("encoder", "decoder", "encoder-decoder")
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {
        "encoder": ("", ""),
        "decoder": ("", ""),
        "encoder-decoder": ("encoder.", "bert."),
    }

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        shape = shape_of(config, vocabulary, layers)
        if layout == "encoder":
            return PlainBertForMaskedLM(PlainBertConfig(**shape))
        if layout == "decoder":
            return PlainBertLMHeadModel(PlainBertConfig(**shape, is_decoder=True))
        second = PlainBertConfig(**shape_of(config, target, config.decoder_depth), **BESIDE_AN_ENCODER)
        return encoder_decoder(BertConfig(**shape), second, PlainBertLMHeadModel, target)
