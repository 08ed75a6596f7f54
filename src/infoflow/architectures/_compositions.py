"""Compositions of a stack with further trained parts: heads for pairs or spans, a generator, a backward stack.

Each is a `PreTrainedModel` that contains the model to be saved and measured, of any family, and the further parts.
"""

import re
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow._transformers import ElectraConfig, ElectraForMaskedLM

_BOUNDARY_WIDTH = 200  # width of the embeddings of relative positions in a span
_BOUNDARY_PLACES = 20
_GENERATOR_SHARE = 4  # the generator's width is a quarter
_GENERATOR_HEAD = 64  # width of its heads


class _Joint(PreTrainedModel):
    """Shared base of the compositions: the measured part's configuration, and BERT's initialisation of new heads."""

    _supports_sdpa = True
    _supports_attention_backend = True

    def _begin(self, *modules: nn.Module) -> None:
        """Initialises new heads: normal with the model's standard deviation, biases 0."""
        deviation = float(self.config.initializer_range)
        for module in modules:
            for part in module.modules():
                if isinstance(part, nn.Linear | nn.Embedding):
                    nn.init.normal_(part.weight, std=deviation)
                if isinstance(part, nn.Linear) and part.bias is not None:
                    nn.init.zeros_(part.bias)


class PairEncoder(_Joint):
    """A masked LM with a pooler and a binary classifier of segment pairs, as in `BertForPreTraining`."""

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
        self, left: Float[Tensor, "asked width"], right: Float[Tensor, "asked width"], place: Int[Tensor, " asked"]
    ) -> Float[Tensor, "asked vocabulary"]:
        """Logits of the token at `place` of a span, from the states of the tokens before and after the span."""
        state = self.boundary(torch.cat([left, right, self.places(place)], dim=-1))
        return state @ self.encoder.get_input_embeddings().weight.T + self.boundary_bias


class GeneratorDiscriminator(_Joint):
    """ELECTRA: a discriminator with one logit per token, and a `generator_for` it that shares its token embeddings."""

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
        """The forward stack's last states for the texts, and the backward stack's for the reversed texts.

        Padding is on the right, where no causal position sees it, so it needs no mask.
        """
        return (
            self.forwards.base_model(input_ids=input_ids, use_cache=False).last_hidden_state,
            self.backwards.base_model(input_ids=reversed_ids, use_cache=False).last_hidden_state,
        )


class StudentTeacher(_Joint):
    """A masked LM with every other layer of its teacher (DistilBERT), and the frozen teacher."""

    base_model_prefix = "student"

    def __init__(self, student: PreTrainedModel, teacher: PreTrainedModel) -> None:
        super().__init__(teacher.config)
        self.student, self.teacher = student, teacher.requires_grad_(False)

    def learn_from(self, teacher: PreTrainedModel) -> None:
        """Load the trained teacher; the student starts with the teacher's embeddings, head and every other layer.

        If all layers are shared (ALBERT), the student has the same layer, applied half as often.
        """
        self.teacher.load_state_dict(teacher.state_dict())
        values = {_in_student(name): value for name, value in teacher.state_dict().items() if _in_student(name)}
        self.student.load_state_dict(
            {name: value for name, value in values.items() if name in self.student.state_dict()}
        )


_LAYER = re.compile(r"(.*encoder\.(?:layer|albert_layer_groups)\.)(\d+)(\..*)")


def _in_student(name: str) -> str:
    """The student's name for a teacher parameter; "" for layers 1, 3, ..., which the student lacks."""
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
