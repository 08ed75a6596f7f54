"""ELMo: LSTMs in both directions instead of attention."""

from typing import ClassVar, final

from transformers import PreTrainedModel

from infoflow.corpus import Vocabulary
from infoflow.models import Elmo as ElmoModel
from infoflow.models import ElmoConfig

from ._config import ModelConfig, shape_of
from ._family import AbstractFamily, Layout

_LAYERS = 2  # ELMo's, in each direction, whatever the depth of the other models


@final
class Elmo(AbstractFamily):
    """A biLM of two layers of LSTMs in each direction ([@peters2018deep]).

    Each direction is as wide as a study's other models, so that its concatenated states are twice as wide; LSTMs have
    as many cells as the others' feed-forward width (ELMo: 4096, projected to 512).
    """

    name: ClassVar[str] = "elmo"
    layouts: ClassVar[tuple[Layout, ...]] = ("bidirectional-pair",)
    learned_positions: ClassVar[bool] = False
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"bidirectional-pair": ("", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        shape = shape_of(config, vocabulary, min(layers, _LAYERS))
        kept = ("vocab_size", "hidden_size", "num_hidden_layers", "initializer_range", "max_position_embeddings")
        special = {name: shape[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        cells = max(config.feedforward, config.width + 1)  # torch requires fewer projections than cells
        return ElmoModel(
            ElmoConfig(**{name: shape[name] for name in kept}, cell_size=cells, dropout=config.dropout, **special)
        )

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Parameters of the matrices, without biases."""
        cells = max(config.feedforward, config.width + 1)
        lstm = 8 * cells * config.width + cells * config.width
        return 2 * min(layers, _LAYERS) * lstm + 2 * vocabulary.size * config.width
