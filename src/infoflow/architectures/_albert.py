"""ALBERT: one layer applied repeatedly, and factorised embeddings."""

from typing import Any, ClassVar, final

from transformers import AlbertConfig, AlbertForMaskedLM, AlbertForTokenClassification, PreTrainedModel

from infoflow.corpus import Vocabulary

from ._config import ModelConfig, shape_of
from ._encoders import AbstractEncoderFamily

_FACTOR = 2  # the embeddings' inner width is this fraction of the model's


@final
class Albert(AbstractEncoderFamily):
    """Hugging Face's ALBERT: all layers share parameters, so no parameter belongs to a single layer ([@lan2020albert]).

    Embeddings are V × E + E × d with E = d / 2: at width 64 the 32 of the matched comparison (the published base model
    has 128 of 768). Its own objective is `masked-lm-sop`. A student applies its teacher's layer half as often.
    """

    name: ClassVar[str] = "albert"
    base: ClassVar[str] = "albert"
    differs: ClassVar[str] = "one layer stands for all, and the embeddings are in two factors"

    def masked_lm(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """See `AbstractEncoderFamily.masked_lm`."""
        return AlbertForMaskedLM(AlbertConfig(**_shape(config, vocabulary, layers)))

    def detector(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        """See `AbstractEncoderFamily.detector`."""
        head = {"num_labels": 1, "classifier_dropout_prob": 0.0}  # as ELECTRA's, without dropout
        return AlbertForTokenClassification(AlbertConfig(**_shape(config, vocabulary, layers), **head))

    def encoder_parameters(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> int:
        """Parameters of the matrices, without biases."""
        inner = config.width // _FACTOR
        return config.block_parameters + (vocabulary.size + config.positions + config.width) * inner


def _shape(config: ModelConfig, vocabulary: Vocabulary, layers: int) -> dict[str, Any]:
    return shape_of(config, vocabulary, layers) | {"embedding_size": max(config.width // _FACTOR, 1)}
