"""Interface of a family of architectures: its layouts, how to build them, and their size."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from transformers import PreTrainedModel

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError

from ._config import ModelConfig

EncoderLayout = Literal["encoder", "encoder-pair", "encoder-spans", "generator-discriminator", "student-teacher"]
"""Layouts of encoders.

A masked LM; one with a head for pairs of segments; one with a head for span boundaries; a stack that detects replaced
tokens, with a small generator; a masked LM of half the depth, with its teacher.
"""
Layout = Literal[EncoderLayout, "decoder", "encoder-decoder", "bidirectional-pair", "static"]
"""Which stacks and heads a model has, and whether it looks ahead: an objective asks for a layout, a family builds it.

"bidirectional-pair" is two decoders, one of the text and one of the text from its end, with the same embeddings and
head; "static" has no stack, only vectors."""


class AbstractFamily(ABC):
    """A kind of block, in one or more layouts."""

    name: ClassVar[str]
    layouts: ClassVar[tuple[Layout, ...]]
    """Its layouts. The first is the reference: the others start with its values."""
    two_vocabularies: ClassVar[bool] = True
    """Whether input and output may have different vocabularies."""
    differs: ClassVar[str] = ""
    """Why its initial weights cannot equal those of BERT's blocks; "": they do, where shapes match."""
    source_stack: ClassVar[Mapping[Layout, tuple[str, str]]]
    """Name prefixes of the source-reading parameters, in each layout and in the reference."""
    second_stack: ClassVar[Mapping[Layout, tuple[str, str]]] = {}
    """The same for a second stack that starts with the same values."""

    learned_positions: ClassVar[bool] = True
    """Whether positions are a learned table, which fixed sinusoids may replace."""

    def check(self, config: ModelConfig) -> None:
        """Raise a UserError if the shape is impossible; checked before anything else."""
        if config.sinusoidal_positions and not self.learned_positions:
            raise UserError(
                f"model.sinusoidal_positions stand in place of positions that are learned, of which {self.name} has "
                f"none. Got {config.sinusoidal_positions:g}. Leave it at 0, or leave {self.name} out of architectures."
            )

    @abstractmethod
    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """A model with random weights, drawn from torch's global generator.

        Args:
            layout: One of `layouts`.
            config: The shape.
            vocabulary: Vocabulary of the input of the model, or its encoder.
            target: Vocabulary of the decoder in an encoder-decoder.
            layers: Number of layers of every stack.
        """

    @abstractmethod
    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """A lower estimate of the number of parameters that `build` would create, available before building."""
