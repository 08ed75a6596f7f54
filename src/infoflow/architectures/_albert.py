"""ALBERT: one layer that is applied again and again, and embeddings in two factors."""

from typing import ClassVar, final

from transformers import AlbertConfig, AlbertForMaskedLM, PreTrainedModel

from infoflow.corpus import Vocabulary

from ._config import ModelConfig, shape_of
from ._family import AbstractFamily, Layout

_FACTOR = 2  # the embeddings' inner width is that part of the model's


@final
class Albert(AbstractFamily):
    """Hugging Face's ALBERT: all layers are one, so nothing about parameters is by layer ([@lan2020albert]).

    Embeddings are V × E + E × d with E = d / 2: at width 64 the 32 of the matched comparison (the published base model
    has 128 of 768).
    """

    name: ClassVar[str] = "albert"
    layouts: ClassVar[tuple[Layout, ...]] = ("encoder",)
    differs: ClassVar[str] = "one layer stands for all, and the embeddings are in two factors"
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"encoder": ("", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        inner = max(config.width // _FACTOR, 1)
        return AlbertForMaskedLM(AlbertConfig(**shape_of(config, vocabulary, layers), embedding_size=inner))

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Its matrices alone: biases come on top."""
        inner = config.width // _FACTOR
        return config.block_parameters + (vocabulary.size + config.positions + config.width) * inner
