"""Stacks with what some objectives train beside them: a head for pairs or spans, a generator, the other direction.

Each is one `PreTrainedModel` that holds the model which is saved and measured, and the rest.
"""

import re

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    PreTrainedModel,
)

_BOUNDARY_WIDTH = 200  # of the relative positions in a span
_BOUNDARY_PLACES = 20
_GENERATOR_SHARE = 4  # the generator's width is a quarter
_GENERATOR_HEAD = 64  # width of its heads


class _Joint(PreTrainedModel):
    """What the compositions share: attention as in BERT, weights of new heads as there."""

    _supports_sdpa = True
    _supports_attention_backend = True

    def _begin(self, *modules: nn.Module) -> None:
        """Weights of new heads: normal with the model's deviation, biases 0."""
        deviation = float(self.config.initializer_range)
        for module in modules:
            for part in module.modules():
                if isinstance(part, nn.Linear | nn.Embedding):
                    nn.init.normal_(part.weight, std=deviation)
                if isinstance(part, nn.Linear) and part.bias is not None:
                    nn.init.zeros_(part.bias)


class PairEncoder(_Joint):
    """A masked LM with a pooler and an answer, yes or no, about two segments: `BertForPreTraining` in two parts."""

    config_class = BertConfig
    base_model_prefix = "encoder"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.encoder = BertForMaskedLM(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.pair_head = nn.Linear(config.hidden_size, 2)
        self._begin(self.pooler, self.pair_head)

    def pair_logits(self, hidden: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch 2"]:
        """Logits of no and yes, from the state of the first token."""
        return self.pair_head(torch.tanh(self.pooler(hidden[:, 0])))


class SpanEncoder(_Joint):
    """A masked LM with a head that predicts a span's tokens from its two neighbours (SpanBERT).

    Two blocks of Linear, GELU and LayerNorm over `[left; right; place]`, and the word embeddings with a bias of its
    own.
    """

    config_class = BertConfig
    base_model_prefix = "encoder"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.encoder = BertForMaskedLM(config)
        self.places = nn.Embedding(_BOUNDARY_PLACES, _BOUNDARY_WIDTH)
        self.boundary = nn.Sequential(
            nn.Linear(2 * width + _BOUNDARY_WIDTH, width),
            nn.GELU(),
            nn.LayerNorm(width, eps=config.layer_norm_eps),
            nn.Linear(width, width),
            nn.GELU(),
            nn.LayerNorm(width, eps=config.layer_norm_eps),
        )
        self.boundary_bias = nn.Parameter(torch.zeros(config.vocab_size))
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
    """ELECTRA: a discriminator, and a generator a quarter as wide that shares its token embeddings."""

    config_class = ElectraConfig
    base_model_prefix = "discriminator"

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__(config)
        self.discriminator = ElectraForPreTraining(config)
        self.generator = ElectraForMaskedLM(_generator(config))
        self.generator.electra.embeddings.word_embeddings = self.discriminator.electra.embeddings.word_embeddings
        self.generator.tie_weights()

    def generator_logits(self, states: Float[Tensor, "chosen width"]) -> Float[Tensor, "chosen vocabulary"]:
        """Logits of the generator from its last states."""
        return self.generator.generator_lm_head(self.generator.generator_predictions(states))


class BidirectionalPair(_Joint):
    """A biLM of two causal stacks: one reads the text, the other the text from its end ([@peters2018deep]).

    They share the word embeddings and the head; no layer sees states of the other direction. Positions are each
    stack's own: the backward one counts from the end.
    """

    config_class = BertConfig
    base_model_prefix = "forwards"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.forwards, self.backwards = BertLMHeadModel(config), BertLMHeadModel(config)
        self.backwards.bert.embeddings.word_embeddings = self.forwards.bert.embeddings.word_embeddings
        self.backwards.cls = self.forwards.cls

    def both_ways(
        self, input_ids: Int[Tensor, "batch token"], reversed_ids: Int[Tensor, "batch token"]
    ) -> tuple[Float[Tensor, "batch token width"], Float[Tensor, "batch token width"]]:
        """Last states of the forward stack on the texts, and of the backward one on the texts from their ends.

        Padding on the right, where a causal position never sees it, needs no mask.
        """
        return (
            self.forwards.bert(input_ids=input_ids, use_cache=False).last_hidden_state,
            self.backwards.bert(input_ids=reversed_ids, use_cache=False).last_hidden_state,
        )


class StudentTeacher(_Joint):
    """A masked LM with every other layer of its teacher's (DistilBERT), and the teacher, which is not trained."""

    config_class = BertConfig
    base_model_prefix = "student"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        shallow = BertConfig(**{**config.to_diff_dict(), "num_hidden_layers": max(config.num_hidden_layers // 2, 1)})
        self.student, self.teacher = BertForMaskedLM(shallow), BertForMaskedLM(config).requires_grad_(False)

    def learn_from(self, teacher: BertForMaskedLM) -> None:
        """Take the trained teacher's weights; the student begins with its embeddings, head and every other layer."""
        self.teacher.load_state_dict(teacher.state_dict())
        values = {_in_student(name): value for name, value in teacher.state_dict().items() if _in_student(name)}
        self.student.load_state_dict(
            {name: value for name, value in values.items() if name in self.student.state_dict()}
        )


_LAYER = re.compile(r"(.*encoder\.layer\.)(\d+)(\..*)")


def _in_student(name: str) -> str:
    """The name in the student of the teacher's parameter; "" for those of layers 1, 3, ..., which it lacks."""
    found = _LAYER.fullmatch(name)
    if found is None:
        return name
    return "" if int(found[2]) % 2 else f"{found[1]}{int(found[2]) // 2}{found[3]}"


def _generator(config: ElectraConfig) -> ElectraConfig:
    width = max(config.hidden_size // _GENERATOR_SHARE, 1)
    # As many heads of 64 as fit; a width that they do not divide gets fewer.
    heads = next(heads for heads in range(max(1, width // _GENERATOR_HEAD), 0, -1) if width % heads == 0)
    shape = {"hidden_size": width, "intermediate_size": max(config.intermediate_size // _GENERATOR_SHARE, 1)}
    return ElectraConfig(**{**config.to_diff_dict(), **shape, "num_attention_heads": heads})
