"""The shape of a model that a study trains."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from infoflow.corpus import Vocabulary
from infoflow.foundation import LATER, Limits, Share, UserError, check_settings

Deviation = Annotated[float, Limits(at_least=0, at_most=10)]
Layers = Annotated[int, Limits(at_least=1, at_most=1000)]
_BERT_WIDTH, _BERT_DEVIATION = 768, 0.02
Activation = Literal["relu", "relu6", "gelu", "gelu_new", "gelu_fast", "quick_gelu", "silu", "swish", "mish", "tanh"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape shared by the models of a study."""

    width: Annotated[int, Limits(at_least=1, at_most=65_536)] = 128  # of the residual stream
    layers: Layers = 6  # per stack (see `match` of `build`)
    heads: Annotated[int, Limits(at_least=1, at_most=1024)] = 8
    feedforward: Annotated[int, Limits(at_least=1, at_most=10**6)] = 512
    activation: Activation = "relu"  # the recipe behind the published comparisons; BERT's own is gelu
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    initializer_range: Deviation = 0.02  # standard deviation of weights and embeddings; 0: derived from the width
    positions: Annotated[int, Limits(at_least=3, at_most=100_000)] = 128  # longest sentence in tokens
    # Of a decoder with an encoder; 0: as many as the encoder. A shallow one leaves the context to the encoder.
    decoder_layers: Annotated[int, Limits(at_least=0, at_most=1000)] = field(default=0, metadata=LATER)
    # Amplitude of fixed sinusoids instead of learned positions (0): see `_positions.py`.
    sinusoidal_positions: Deviation = field(default=0.0, metadata=LATER)
    # Components that may be removed (`_taken_away.py`).
    tie_word_embeddings: bool = field(default=True, metadata=LATER)  # false: separate output matrix
    elementwise_affine: bool = field(default=True, metadata=LATER)  # false: norms have no gain and no bias

    def __post_init__(self) -> None:
        check_settings(self, "model")
        if self.width % self.heads:
            raise UserError(
                "model.width must be a multiple of model.heads: each head has an equal part of it. Got a width of "
                f"{self.width} and {self.heads} heads. Try {max(1, self.width // self.heads) * self.heads}."
            )

    @property
    def decoder_depth(self) -> int:
        """Layers of a decoder with an encoder."""
        return self.decoder_layers or self.layers

    @property
    def deviation(self) -> float:
        """Standard deviation of the initial weights and embeddings.

        Derived from the width it is 0.02 · √(768 / width): products of a state with a row of weights then have the same
        spread as in BERT, whose 0.02 is for a width of 768.
        """
        return self.initializer_range or _BERT_DEVIATION * (_BERT_WIDTH / self.width) ** 0.5

    @property
    def block_parameters(self) -> int:
        """Parameters of the matrices of one layer: query, key, value and output, and both of the feed-forward part."""
        return 4 * self.width**2 + 2 * self.width * self.feedforward


def shape_of(config: ModelConfig, vocabulary: Vocabulary, layers: int) -> dict[str, Any]:
    """The shape under Hugging Face's usual configuration names."""
    return {
        "vocab_size": vocabulary.size,
        "hidden_size": config.width,
        "num_hidden_layers": layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feedforward,
        "hidden_act": config.activation,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.deviation,
        "max_position_embeddings": config.positions,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.start,
        "eos_token_id": vocabulary.end,
    }
