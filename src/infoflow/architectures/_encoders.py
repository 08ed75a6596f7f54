"""Families of masked LMs: each provides its blocks; further trained parts are the same for all."""

from abc import abstractmethod
from typing import ClassVar, get_args

from transformers import ElectraConfig, PreTrainedModel

from infoflow.corpus import Vocabulary

from ._config import ModelConfig, shape_of
from ._family import AbstractFamily, EncoderLayout, Layout
from ._joint import GeneratorDiscriminator, PairEncoder, SpanEncoder, StudentTeacher, generator_for


class AbstractEncoderFamily(AbstractFamily):
    """A family with a masked LM, which supports every encoder layout.

    A pooler and a head for pairs, a head for span boundaries, or a student of half the depth is added to the family's
    own masked LM; a discriminator is its blocks with one logit per token. Its generator is small and uses ELECTRA's
    blocks in every family, so that all have the same kind of noise.
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
        """The blocks with a head of one logit per token, likewise."""

    @abstractmethod
    def encoder_parameters(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> int:
        """A lower estimate of the number of parameters of `masked_lm`."""

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        if layout == "generator-discriminator":
            discriminator = self.detector(config, vocabulary, layers)
            words = discriminator.get_input_embeddings().embedding_dim
            generator = generator_for(electra_config(config, vocabulary, layers, embedding_size=int(words)))
            return GeneratorDiscriminator(discriminator, generator)
        if layout == "student-teacher":
            student = self.masked_lm(config, vocabulary, max(layers // 2, 1))
            return StudentTeacher(student, self.masked_lm(config, vocabulary, layers))
        encoder = self.masked_lm(config, vocabulary, layers)
        if layout == "encoder":
            return encoder
        return PairEncoder(encoder) if layout == "encoder-pair" else SpanEncoder(encoder)

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Parameters of the matrices, without biases."""
        parameters = self.encoder_parameters(config, vocabulary, layers)
        if layout == "student-teacher":
            parameters += self.encoder_parameters(config, vocabulary, layers // 2)
        if layout == "generator-discriminator":
            parameters += layers * config.block_parameters // 16
        return parameters


def electra_config(config: ModelConfig, vocabulary: Vocabulary, layers: int, embedding_size: int) -> ElectraConfig:
    """A configuration of ELECTRA, whose layers equal BERT's, under the same names."""
    return ElectraConfig(**shape_of(config, vocabulary, layers), embedding_size=embedding_size)
