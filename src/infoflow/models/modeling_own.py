"""infoflow's own models, which declare their stacks: plain BERT, causal BERT, static vectors, ELMo.

Importing this module registers them with transformers, so that its `Auto` classes load their folders.
"""

import warnings
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, MultipleChoiceModelOutput, SequenceClassifierOutput
from transformers.models.bert.modeling_bert import BertPreTrainedModel

from ._anatomy import Layer, Stack

OWN: dict[str, type[PreTrainedModel]] = {}
"""infoflow's own models, by the class name in a checkpoint's configuration."""


class AbstractOwnModel(PreTrainedModel):
    """A model without attention. It declares its stacks and padding, which are not inferred from a pass."""

    def stacks(self) -> tuple[Stack, ...]:
        """Its stacks; their layers have no attention."""
        raise NotImplementedError

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        config: Any = cls.config_class
        OWN[cls.__name__] = cls
        AutoConfig.register(config.model_type, config)
        AutoModel.register(config, cls)


class PlainBertConfig(BertConfig):
    """A BERT configuration with its own name: transformers' BERT would add a transform with random weights."""

    model_type = "infoflow-plain-bert"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class PlainBertModel(BertModel):
    """Plain BERT's blocks without a head; an aligned encoder is saved in this form."""

    config_class = PlainBertConfig


class PlainBertForMaskedLM(BertForMaskedLM):
    """A masked LM with logits W h + b of the top layer's states h; W is the embedding matrix.

    BERT transforms h first (a dense layer, an activation, a norm), a part of the prediction that no layer's states
    show.
    """

    config_class = PlainBertConfig

    def __init__(self, config: PlainBertConfig) -> None:
        super().__init__(config)
        self.cls.predictions.transform = nn.Identity()  # type: ignore[assignment]


class PlainBertLMHeadModel(BertLMHeadModel):
    """A causal LM, or the decoder of an encoder-decoder, with logits as in `PlainBertForMaskedLM`."""

    config_class = PlainBertConfig

    def __init__(self, config: PlainBertConfig) -> None:
        super().__init__(config)
        self.cls.predictions.transform = nn.Identity()  # type: ignore[assignment]


OWN |= {one.__name__: one for one in (PlainBertForMaskedLM, PlainBertLMHeadModel)}
AutoConfig.register(PlainBertConfig.model_type, PlainBertConfig)
AutoModel.register(PlainBertConfig, PlainBertModel)
AutoModelForMaskedLM.register(PlainBertConfig, PlainBertForMaskedLM)
AutoModelForCausalLM.register(PlainBertConfig, PlainBertLMHeadModel)


class CausalBertConfig(BertConfig):
    """A BERT configuration with `is_decoder` and its own name, since transformers' heads for BERT read [CLS]."""

    model_type = "infoflow-causal-bert"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class _CausalBert(BertPreTrainedModel):
    """The body and its text representation: the state of the last real token, which attends to all tokens."""

    config_class = CausalBertConfig

    def __init__(self, config: CausalBertConfig, outputs: int) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        chosen = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if chosen is None else chosen)
        self.classifier = nn.Linear(config.hidden_size, outputs)
        self.post_init()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        OWN[cls.__name__] = cls

    def _logits(
        self, input_ids: Int[Tensor, "text token"], attention_mask: Int[Tensor, "text token"] | None, **inputs: Any
    ) -> Float[Tensor, "text output"]:
        """Logits of texts that are padded on the right."""
        states_BTD = self.bert(input_ids, attention_mask=attention_mask, **inputs).last_hidden_state
        rows = input_ids.new_zeros(len(input_ids))
        last_B = rows + input_ids.shape[1] - 1 if attention_mask is None else attention_mask.sum(dim=1) - 1
        picked = last_B[:, None, None].expand(-1, 1, states_BTD.shape[-1])
        return self.classifier(self.dropout(states_BTD.gather(1, picked)[:, 0]))


class CausalBertForSequenceClassification(_CausalBert):
    """Logits of a text's class, or a number if there is one output."""

    def __init__(self, config: CausalBertConfig) -> None:
        super().__init__(config, config.num_labels)

    def forward(
        self,
        input_ids: Int[Tensor, "text token"],
        attention_mask: Int[Tensor, "text token"] | None = None,
        token_type_ids: Int[Tensor, "text token"] | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        """Logits (text, label)."""
        logits = self._logits(input_ids, attention_mask, token_type_ids=token_type_ids)
        return SequenceClassifierOutput(logits=logits)  # type: ignore[arg-type]


class CausalBertForMultipleChoice(_CausalBert):
    """A score for each of several texts."""

    def __init__(self, config: CausalBertConfig) -> None:
        super().__init__(config, 1)

    def forward(
        self,
        input_ids: Int[Tensor, "text choice token"],
        attention_mask: Int[Tensor, "text choice token"] | None = None,
        token_type_ids: Int[Tensor, "text choice token"] | None = None,
        **_: Any,
    ) -> MultipleChoiceModelOutput:
        """Logits (text, choice)."""
        flat = [None if each is None else each.flatten(0, 1) for each in (input_ids, attention_mask, token_type_ids)]
        assert flat[0] is not None
        logits = self._logits(flat[0], flat[1], token_type_ids=flat[2]).view(input_ids.shape[:2])
        return MultipleChoiceModelOutput(logits=logits)  # type: ignore[arg-type]


AutoConfig.register(CausalBertConfig.model_type, CausalBertConfig)
AutoModelForSequenceClassification.register(CausalBertConfig, CausalBertForSequenceClassification)
AutoModelForMultipleChoice.register(CausalBertConfig, CausalBertForMultipleChoice)


class StaticConfig(PreTrainedConfig):
    """Number of tokens, length of their vectors, and the maximum text length of a study's other models."""

    model_type = "infoflow-static"

    def __init__(
        self, vocab_size: int = 1000, hidden_size: int = 100, max_position_embeddings: int = 512, **more: Any
    ) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.max_position_embeddings = max_position_embeddings
        super().__init__(**more)


class StaticVectors(AbstractOwnModel):
    """A model without blocks: the state of a token is its vector, independent of context.

    As in word2vec ([@mikolov2013distributed]) input vectors are initialised uniformly in ±.5 / d, output vectors at 0.
    """

    config_class = StaticConfig
    base_model_prefix = "vectors"

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        self.input_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.output_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if module is self.input_embeddings:
            init.uniform_(self.input_embeddings.weight, -0.5 / self.config.hidden_size, 0.5 / self.config.hidden_size)
        if module is self.output_embeddings:
            init.zeros_(self.output_embeddings.weight)

    def stacks(self) -> tuple[Stack, ...]:
        """One stack without layers: state 0 is the only state."""
        return (Stack(name="encoder", causal=False, width=self.config.hidden_size, layers=()),)

    def get_input_embeddings(self) -> nn.Embedding:
        """The input vectors, which are measured."""
        return self.input_embeddings

    def get_output_embeddings(self) -> None:
        """None: output vectors score pairs and do not predict a token alone."""

    def scores(self, centers: Int[Tensor, " pair"], others: Int[Tensor, "pair *more"]) -> Float[Tensor, "pair *more"]:
        """Inner product of each center's input vector with the output vectors of other tokens."""
        vectors = self.input_embeddings(centers)
        for _ in range(others.dim() - 1):
            vectors = vectors.unsqueeze(1)
        return (vectors * self.output_embeddings(others)).sum(dim=-1)

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutput:
        """The vectors of the tokens."""
        return BaseModelOutput(last_hidden_state=self.input_embeddings(input_ids))


# B sentence, T token, D width of one direction


class ElmoConfig(PreTrainedConfig):
    """`hidden_size` is the width of one direction, and `cell_size` the width of the LSTMs before their projection."""

    model_type = "infoflow-elmo"

    def __init__(
        self,
        vocab_size: int = 1000,
        hidden_size: int = 128,
        cell_size: int = 512,
        num_hidden_layers: int = 2,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        max_position_embeddings: int = 512,
        **more: Any,
    ) -> None:
        self.vocab_size, self.hidden_size, self.cell_size = vocab_size, hidden_size, cell_size
        self.num_hidden_layers, self.dropout = num_hidden_layers, dropout
        self.initializer_range, self.max_position_embeddings = initializer_range, max_position_embeddings
        super().__init__(**more)


class _Direction(nn.Module):
    """One LSTM of one layer, with dropout, and a residual connection from the second layer on."""

    def __init__(self, config: ElmoConfig, residual: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(config.hidden_size, config.cell_size, proj_size=config.hidden_size, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.residual = residual

    def forward(self, states: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        with warnings.catch_warnings():  # torch warns once that a backend lacks projections
            warnings.filterwarnings("ignore", "LSTM with projections", UserWarning)
            found = self.dropout(self.lstm(states)[0])
        return states + found if self.residual else found


class ElmoBlock(nn.Module):
    """One layer: an LSTM over the first half of the states, and one from the texts' ends over the second half."""

    def __init__(self, config: ElmoConfig, residual: bool) -> None:
        super().__init__()
        self.ahead, self.back = _Direction(config, residual), _Direction(config, residual)

    def forward(
        self, hidden_states: Float[Tensor, "batch token both"], turned: Int[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token both"]:
        """The next states; `turned` maps each position of a text to its position when read from the end."""
        ahead, back = hidden_states.chunk(2, dim=-1)
        return torch.cat([self.ahead(ahead), _turn(self.back(_turn(back, turned)), turned)], dim=-1)


class Elmo(AbstractOwnModel):
    """A biLM of LSTMs ([@peters2018deep]): both directions share embeddings and softmax, and no layer mixes them.

    A state concatenates the states of both directions, forward first; state 0 is the embedding, twice. Token
    embeddings replace the paper's character convolutions; as in the paper, LSTMs are projected to the width of the
    states, and the second layer's input is added to its output.
    """

    config_class = ElmoConfig
    base_model_prefix = "elmo"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(ElmoBlock(config, residual=index > 0) for index in range(config.num_hidden_layers))
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding | nn.Linear):  # LSTMs keep torch's initialisation
            init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            init.zeros_(module.bias)

    def stacks(self) -> tuple[Stack, ...]:
        """One stack, twice as wide as a direction."""
        layers = tuple(
            Layer(index=index, block=f"layers.{index}", attentions={}, other_paths=True)
            for index in range(self.config.num_hidden_layers)
        )
        return (Stack(name="encoder", causal=False, width=2 * self.config.hidden_size, layers=layers),)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embeddings that both directions share."""
        return self.embeddings

    def get_output_embeddings(self) -> None:
        """None: a state as a whole has no logits, since each direction predicts a different token."""

    def both_ways(
        self, input_ids: Int[Tensor, "batch token"], reversed_ids: Int[Tensor, "batch token"]
    ) -> tuple[Float[Tensor, "batch token width"], Float[Tensor, "batch token width"]]:
        """Last states of the forward direction on the texts, and of the backward one on the reversed texts.

        Padding is on the right, after everything that a direction reads, so it needs no mask.
        """
        ahead, back = self.dropout(self.embeddings(input_ids)), self.dropout(self.embeddings(reversed_ids))
        for layer in self.layers:
            ahead, back = layer.ahead(ahead), layer.back(back)  # type: ignore[operator]
        return ahead, back

    def forward(
        self,
        input_ids: Int[Tensor, "batch token"],
        attention_mask: Int[Tensor, "batch token"] | None = None,
        output_hidden_states: bool = False,
        **_: Any,
    ) -> BaseModelOutput:
        """States of both directions, padding on the right."""
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        turned = _turned(real.sum(dim=1), input_ids.shape[1])
        embedded = self.dropout(self.embeddings(input_ids))
        states = [torch.cat([embedded, embedded], dim=-1)]
        for layer in self.layers:
            states.append(layer(states[-1], turned))
        return BaseModelOutput(
            last_hidden_state=states[-1], hidden_states=tuple(states) if output_hidden_states else None
        )


def _turned(lengths: Int[Tensor, " batch"], longest: int) -> Int[Tensor, "batch longest"]:
    """Indices that reverse each text: position t is taken from `length - 1 - t`; padding stays in place."""
    places = torch.arange(longest, device=lengths.device).expand(len(lengths), longest)
    mirrored = lengths[:, None] - 1 - places
    return torch.where(mirrored >= 0, mirrored, places)


def _turn(
    states: Float[Tensor, "batch token width"], turned: Int[Tensor, "batch token"]
) -> Float[Tensor, "batch token width"]:
    return states.gather(1, turned[:, :, None].expand_as(states))
