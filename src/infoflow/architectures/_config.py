"""The shape of a model that a study trains."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from infoflow.corpus import Vocabulary
from infoflow.foundation import Limits, Share, UserError, check_settings

Deviation = Annotated[float, Limits(above=0, at_most=10)]
Activation = Literal["relu", "relu6", "gelu", "gelu_new", "gelu_fast", "quick_gelu", "silu", "swish", "mish", "tanh"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape that the models of a study share."""

    width: Annotated[int, Limits(at_least=1, at_most=65_536)] = 128  # of the residual stream
    layers: Annotated[int, Limits(at_least=1, at_most=1000)] = 6  # of every stack (see `match` of `build`)
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

    @property
    def block_parameters(self) -> int:
        """Of the matrices of one layer: query, key, value and output, and both of the feed-forward part."""
        return 4 * self.width**2 + 2 * self.width * self.feedforward


def shape_of(config: ModelConfig, vocabulary: Vocabulary, layers: int) -> dict[str, Any]:
    """The shape under the names that most configurations of Hugging Face give it."""
    return {
        "vocab_size": vocabulary.size,
        "hidden_size": config.width,
        "num_hidden_layers": layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feedforward,
        "hidden_act": config.activation,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.initializer_range,
        "max_position_embeddings": config.positions,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.start,
        "eos_token_id": vocabulary.end,
    }
