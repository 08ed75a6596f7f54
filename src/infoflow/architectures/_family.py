"""The interface of a family of architectures, its kinds of attention, and stacks with further trained parts.

Each is one `PreTrainedModel` that holds the model to be saved and measured, of any family, and the rest.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForMaskedLM, PreTrainedModel

from infoflow.corpus import Vocabulary
from infoflow.foundation import LATER, Limits, Share, UserError, as_written, check_settings

# The shape of a model that a study trains.


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

    width: Annotated[int, Limits(at_least=1, at_most=65_536)] = 128  # of the residual stream
    layers: Layers = 6  # per stack (see `match` of `build`)
    heads: Annotated[int, Limits(at_least=1, at_most=1024)] = 8
    feedforward: Annotated[int, Limits(at_least=1, at_most=10**6)] = 512
    activation: Activation = "relu"  # the recipe behind the published comparisons; BERT's own is gelu
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    initializer_range: Deviation = 0.02  # standard deviation of weights and embeddings; 0: derived from the width
    positions: Annotated[int, Limits(at_least=3, at_most=100_000)] = 128  # longest sentence in tokens
    # Layers of a decoder with an encoder; 0: as many as the encoder. A shallow one leaves the context to the encoder.
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
    share_layers: bool = field(default=True, metadata=_OF_ALBERT)  # one layer's weights stand for all
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


# Kinds of attention in the layouts of trained models, and the scopes that choices among their heads are limited to.


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
    """Number of attention modules in a scope, each with `model.heads` heads."""
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


# Interface of a family of architectures: its layouts, how to build them, and their size.


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
                f"model.sinusoidal_positions replace learned positions, and {self.name} has "
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


# Compositions of a stack with further trained parts: a head for pairs or spans, a generator, the other direction.


_BOUNDARY_WIDTH = 200  # of the relative positions in a span
_BOUNDARY_PLACES = 20
_GENERATOR_SHARE = 4  # the generator's width is a quarter
_GENERATOR_HEAD = 64  # width of its heads


class _Joint(PreTrainedModel):
    """Shared base of the compositions: the measured part's configuration, and BERT's initialisation of new heads."""

    _supports_sdpa = True
    _supports_attention_backend = True

    def _begin(self, *modules: nn.Module) -> None:
        """Initialises new heads: normal with the model's deviation, biases 0."""
        deviation = float(self.config.initializer_range)
        for module in modules:
            for part in module.modules():
                if isinstance(part, nn.Linear | nn.Embedding):
                    nn.init.normal_(part.weight, std=deviation)
                if isinstance(part, nn.Linear) and part.bias is not None:
                    nn.init.zeros_(part.bias)


class PairEncoder(_Joint):
    """A masked LM with a pooler and a binary answer about two segments: `BertForPreTraining` in two parts."""

    base_model_prefix = "encoder"

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__(encoder.config)
        self.encoder = encoder
        width = int(self.config.hidden_size)
        self.pooler = nn.Linear(width, width)
        self.pair_head = nn.Linear(width, 2)
        self._begin(self.pooler, self.pair_head)

    def pair_logits(self, hidden: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch 2"]:
        """Logits of no and yes, from the first token's state."""
        return self.pair_head(torch.tanh(self.pooler(hidden[:, 0])))


class SpanEncoder(_Joint):
    """A masked LM with a head that predicts a span's tokens from its two neighbours (SpanBERT).

    The head has two blocks of Linear, GELU and LayerNorm over `[left; right; place]`; the second is as wide as the word
    embeddings (which may be in two factors). The word embeddings follow, with a separate bias.
    """

    base_model_prefix = "encoder"

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__(encoder.config)
        self.encoder = encoder
        words: Any = encoder.get_input_embeddings()
        width, epsilon = int(self.config.hidden_size), float(self.config.layer_norm_eps)
        self.places = nn.Embedding(_BOUNDARY_PLACES, _BOUNDARY_WIDTH)
        self.boundary = nn.Sequential(
            nn.Linear(2 * width + _BOUNDARY_WIDTH, width),
            nn.GELU(),
            nn.LayerNorm(width, eps=epsilon),
            nn.Linear(width, words.embedding_dim),
            nn.GELU(),
            nn.LayerNorm(words.embedding_dim, eps=epsilon),
        )
        self.boundary_bias = nn.Parameter(torch.zeros(words.num_embeddings))
        self._begin(self.places, self.boundary)

    def boundary_logits(
        self,
        left: Float[Tensor, "asked width"],
        right: Float[Tensor, "asked width"],
        place: Int[Tensor, " asked"],
    ) -> Float[Tensor, "asked vocabulary"]:
        """Logits of the token at `place` of a span, from the states of the tokens before and after the span."""
        state = self.boundary(torch.cat([left, right, self.places(place)], dim=-1))
        return state @ self.encoder.get_input_embeddings().weight.T + self.boundary_bias


class GeneratorDiscriminator(_Joint):
    """ELECTRA: a discriminator of one logit a token, and a generator (`generator_for` it) with its token embeddings."""

    base_model_prefix = "discriminator"

    def __init__(self, discriminator: PreTrainedModel, generator: ElectraForMaskedLM) -> None:
        super().__init__(discriminator.config)
        self.discriminator, self.generator = discriminator, generator
        generator.set_input_embeddings(discriminator.get_input_embeddings())
        generator.tie_weights()

    def generator_logits(self, states: Float[Tensor, "chosen width"]) -> Float[Tensor, "chosen vocabulary"]:
        """Logits of the generator from its last states."""
        return self.generator.generator_lm_head(self.generator.generator_predictions(states))


class BidirectionalPair(_Joint):
    """A biLM of two causal stacks: one reads the text forward, the other backward ([@peters2018deep]).

    They share the word embeddings and the head (whose name in the family is `head`); no layer sees states of the other
    direction. Each stack has its own positions, which the backward stack counts from the end.
    """

    base_model_prefix = "forwards"

    def __init__(self, forwards: PreTrainedModel, backwards: PreTrainedModel, head: str) -> None:
        super().__init__(forwards.config)
        self.forwards, self.backwards = forwards, backwards
        backwards.set_input_embeddings(forwards.get_input_embeddings())
        setattr(backwards, head, getattr(forwards, head))

    def both_ways(
        self, input_ids: Int[Tensor, "batch token"], reversed_ids: Int[Tensor, "batch token"]
    ) -> tuple[Float[Tensor, "batch token width"], Float[Tensor, "batch token width"]]:
        """Last states of the forward stack on the texts, and of the backward one on the reversed texts.

        Padding is on the right, where no causal position sees it, and needs no mask.
        """
        return (
            self.forwards.base_model(input_ids=input_ids, use_cache=False).last_hidden_state,
            self.backwards.base_model(input_ids=reversed_ids, use_cache=False).last_hidden_state,
        )


class StudentTeacher(_Joint):
    """A masked LM with every other layer of its teacher's (DistilBERT), and the frozen teacher."""

    base_model_prefix = "student"

    def __init__(self, student: PreTrainedModel, teacher: PreTrainedModel) -> None:
        super().__init__(teacher.config)
        self.student, self.teacher = student, teacher.requires_grad_(False)

    def learn_from(self, teacher: PreTrainedModel) -> None:
        """Load the trained teacher's weights; the student starts with its embeddings, head and every other layer.

        If all layers are shared (ALBERT), the student has the same layer, applied half as often.
        """
        self.teacher.load_state_dict(teacher.state_dict())
        values = {_in_student(name): value for name, value in teacher.state_dict().items() if _in_student(name)}
        self.student.load_state_dict(
            {name: value for name, value in values.items() if name in self.student.state_dict()}
        )


_LAYER = re.compile(r"(.*encoder\.(?:layer|albert_layer_groups)\.)(\d+)(\..*)")


def _in_student(name: str) -> str:
    """The student's name of a teacher parameter; "" for layers 1, 3, ..., which it lacks."""
    found = _LAYER.fullmatch(name)
    if found is None:
        return name
    return "" if int(found[2]) % 2 else f"{found[1]}{int(found[2]) // 2}{found[3]}"


def generator_for(discriminator: ElectraConfig) -> ElectraForMaskedLM:
    """A generator as deep as the discriminator and a quarter as wide, with embeddings of equal width."""
    width = max(discriminator.hidden_size // _GENERATOR_SHARE, 1)
    # As many heads of 64 as fit; a width that they do not divide gets fewer.
    heads = next(heads for heads in range(max(1, width // _GENERATOR_HEAD), 0, -1) if width % heads == 0)
    shape = {"hidden_size": width, "intermediate_size": max(discriminator.intermediate_size // _GENERATOR_SHARE, 1)}
    return ElectraForMaskedLM(ElectraConfig(**{**discriminator.to_diff_dict(), **shape, "num_attention_heads": heads}))
