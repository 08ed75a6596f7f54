"""What a family of architectures answers: which layouts it has, how each is built, how large it will be."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from transformers import PreTrainedModel

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError

from ._config import ModelConfig

EncoderLayout = Literal["encoder", "encoder-pair", "encoder-spans", "generator-discriminator", "student-teacher"]
"""A masked LM; one with a head for pairs of segments; with one for the boundaries of spans; a stack that tells replaced
tokens, beside a small generator; a masked LM half as deep, beside the model that teaches it."""
Layout = Literal[EncoderLayout, "decoder", "encoder-decoder", "bidirectional-pair", "static"]
"""Which stacks and heads a model has, and whether it looks ahead: an objective asks for a layout, a family builds it.

"bidirectional-pair" is two decoders, one of the text and one of the text from its end, with the same embeddings and
head; "static" has no stack, only vectors."""


class AbstractFamily(ABC):
    """A kind of block, in one or more layouts."""

    name: ClassVar[str]
    layouts: ClassVar[tuple[Layout, ...]]
    """Layouts that it has. The first is the reference: the others begin with its values."""
    two_vocabularies: ClassVar[bool] = True
    """Whether what it reads and what it writes may be of two vocabularies."""
    differs: ClassVar[str] = ""
    """Why its first weights cannot be those of BERT's blocks; "": they are, as far as shapes go."""
    source_stack: ClassVar[Mapping[Layout, tuple[str, str]]]
    """Where the names of the parameters that read the source begin, in each layout and in the reference."""
    second_stack: ClassVar[Mapping[Layout, tuple[str, str]]] = {}
    """Likewise of a second stack that begins with the same values."""

    learned_positions: ClassVar[bool] = True
    """Whether the places of tokens are a table that is learned, which fixed sinusoids may replace."""

    def check(self, config: ModelConfig) -> None:
        """Raise a UserError where it cannot be of that shape; told before anything else is done."""
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
            vocabulary: Of what the model, or its encoder, reads.
            target: Of what a decoder beside an encoder reads.
            layers: Of every stack.
        """

    @abstractmethod
    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """About how many parameters `build` would make, and no more: told before anything is built."""
