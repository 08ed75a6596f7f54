"""The interface of a family of architectures, the shape of its models, and its kinds of attention."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Vocabulary
from infoflow.foundation import LATER, Limits, Share, UserError, as_written, check_settings

Deviation = Annotated[float, Limits(at_least=0, at_most=10)]
Layers = Annotated[int, Limits(at_least=1, at_most=1000)]
_BERT_WIDTH, _BERT_DEVIATION = 768, 0.02
Width = Annotated[int, Limits(at_least=0, at_most=65_536)]
AttentionPattern = Literal["full", "window", "dilated", "global+window"]
Activation = Literal["relu", "relu6", "gelu", "gelu_new", "gelu_fast", "quick_gelu", "silu", "swish", "mish", "tanh"]
# Settings that only one family has.
_OF_LONGFORMER, _OF_ALBERT = LATER | {"family": "longformer"}, LATER | {"family": "albert"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape shared by the models of a study."""

    width: Annotated[int, Limits(at_least=1, at_most=65_536)] = 128  # width of the residual stream
    layers: Layers = 6  # per stack (see `match` of `build`)
    heads: Annotated[int, Limits(at_least=1, at_most=1024)] = 8
    feedforward: Annotated[int, Limits(at_least=1, at_most=10**6)] = 512
    activation: Activation = "relu"  # the recipe behind the published comparisons; BERT's own is gelu
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    initializer_range: Deviation = 0.02  # standard deviation of weights and embeddings; 0: derived from the width
    positions: Annotated[int, Limits(at_least=3, at_most=100_000)] = 128  # longest sentence in tokens
    # Layers of a decoder that has an encoder; 0: as many as the encoder. A shallow decoder leaves the context to it.
    decoder_layers: Annotated[int, Limits(at_least=0, at_most=1000)] = field(default=0, metadata=LATER)
    # Amplitude of fixed sinusoids instead of learned positions (0): see `fix_positions`.
    sinusoidal_positions: Deviation = field(default=0.0, metadata=LATER)
    # Components that may be removed.
    tie_word_embeddings: bool = field(default=True, metadata=LATER)  # false: separate output matrix
    elementwise_affine: bool = field(default=True, metadata=LATER)  # false: norms have no gain and no bias
    # Which tokens attend to which in `longformer`: see `Longformer`.
    attention: AttentionPattern = field(default="global+window", metadata=_OF_LONGFORMER)
    attention_window: Width = field(default=0, metadata=_OF_LONGFORMER)  # tokens; 0: positions / 8
    # Distance between neighbours in a dilated window.
    attention_dilation: Annotated[int, Limits(at_least=2, at_most=1000)] = field(default=2, metadata=_OF_LONGFORMER)
    # ALBERT's two techniques.
    share_layers: bool = field(default=True, metadata=_OF_ALBERT)  # all layers share one layer's weights
    embedding_width: Width = field(default=0, metadata=_OF_ALBERT)  # E in V × E + E × d; 0: width / 2

    def __post_init__(self) -> None:
        check_settings(self, "model")
        if self.width % self.heads:
            raise UserError(
                "model.width must be a multiple of model.heads: each head has an equal part of it. Got a width of "
                f"{self.width} and {self.heads} heads. Try {max(1, self.width // self.heads) * self.heads}."
            )

    def check_families(self, families: Collection[str]) -> None:
        """Raise a UserError if a setting of a family that is not among `families` was changed."""
        for setting in fields(self):
            family = setting.metadata.get("family")
            if family and family not in families and getattr(self, setting.name) != setting.default:
                raise UserError(
                    f"model.{setting.name} is a setting of {family}, which is not among the architectures. Got "
                    f"{as_written(getattr(self, setting.name))} and {', '.join(families)}.\n"
                    f"Add {family} to architectures, or leave the setting out."
                )

    @property
    def decoder_depth(self) -> int:
        """Number of layers of a decoder that has an encoder."""
        return self.decoder_layers or self.layers

    @property
    def deviation(self) -> float:
        """Standard deviation of the initial weights and embeddings.

        If derived from the width, it is 0.02 · √(768 / width): products of a state with a row of weights then have the
        same spread as in BERT, whose 0.02 is for a width of 768.
        """
        return self.initializer_range or _BERT_DEVIATION * (_BERT_WIDTH / self.width) ** 0.5


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


Scope = Literal["encoder-self", "decoder-self", "decoder-cross", "all"]
KINDS = ("encoder-self", "decoder-self", "decoder-cross")
"""The kinds of attention whose heads are selected separately."""
ALL_HEADS = "all"
"""The scope of a selection among the heads of all kinds of attention."""
TRAINED_ON = ("encoder", "decoder", "encoder-decoder")
"""Layouts of models that a study prunes, retrains with closed attention, or transplants heads from."""
_KINDS = {"decoder": ("decoder-self",), "encoder-decoder": KINDS}  # the other layouts are encoders


def kinds_of(layout: str) -> tuple[str, ...]:
    """Kinds of attention in a model of the layout."""
    return _KINDS.get(layout, ("encoder-self",))


def layers_in(model: ModelConfig, match: str, layout: str, scope: str) -> int:
    """Number of attention modules in a scope; each has `model.heads` heads."""
    kinds = kinds_of(layout)
    encoder, decoder = model.layers, model.decoder_depth
    if len(kinds) == 1:
        return encoder + (decoder if match == "depth" else 0)
    layers = {kind: encoder if kind == KINDS[0] else decoder for kind in kinds}
    return sum(layers.values()) if scope == ALL_HEADS else layers[scope]


def check_trained_on(section: str, layouts: Mapping[str, str]) -> None:
    """Raise a UserError unless the objectives of a section, with their layouts, train models without further parts."""
    for name, layout in layouts.items():
        if layout not in TRAINED_ON:
            raise UserError(
                f"{section}.objectives must train a single model ({', '.join(TRAINED_ON)}). Got {name}, "
                f"which has the layout {layout}. Leave it out."
            )


EncoderLayout = Literal["encoder", "encoder-pair", "encoder-spans", "generator-discriminator", "student-teacher"]
"""Layouts of encoders.

A masked LM; one with a head for pairs of segments; one with a head for span boundaries; a stack that detects replaced
tokens, with a small generator; a masked LM of half the depth, with its teacher.
"""
Layout = Literal[EncoderLayout, "decoder", "encoder-decoder", "bidirectional-pair", "static"]
"""Which stacks and heads a model has, and whether it looks ahead: an objective needs a layout, and a family builds it.

"bidirectional-pair" is two decoders with the same embeddings and head, one that reads the text and one that reads it
from its end; "static" has no stack, only vectors."""


class AbstractFamily(ABC):
    """A kind of block, in one or more layouts."""

    name: ClassVar[str]
    layouts: ClassVar[tuple[Layout, ...]]
    """Its layouts. The first is the reference: the others start with its values."""
    two_vocabularies: ClassVar[bool] = True
    """Whether input and output may have different vocabularies."""
    differs: ClassVar[str] = ""
    """Why its initial weights cannot equal those of BERT's blocks; "" if they do wherever shapes match."""
    source_stack: ClassVar[Mapping[Layout, tuple[str, str]]]
    """Name prefixes of the source-reading parameters, in each layout and in the reference."""
    second_stack: ClassVar[Mapping[Layout, tuple[str, str]]] = {}
    """Such prefixes for a second stack that starts with the same values."""

    learned_positions: ClassVar[bool] = True
    """Whether positions are a learned table, which fixed sinusoids may replace."""

    def check(self, config: ModelConfig) -> None:
        """Raise a UserError if the shape is impossible; checked before anything else."""
        if config.sinusoidal_positions and not self.learned_positions:
            raise UserError(
                f"model.sinusoidal_positions replace learned positions, and {self.name} has "
                f"none. Got {config.sinusoidal_positions:g}. Leave it at 0, or leave {self.name} out of architectures."
            )

    @abstractmethod
    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """A model with random weights, drawn from torch's global generator.

        `vocabulary` is the vocabulary of the model's input (in an encoder-decoder, the encoder's), and `target` is the
        vocabulary of an encoder-decoder's decoder; every stack has `layers` layers.
        """
