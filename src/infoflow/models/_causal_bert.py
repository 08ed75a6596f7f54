"""Causal BERT, with heads that read the whole text from its last token."""

# B text, T token, D width, C choice

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
)
from transformers.modeling_outputs import MultipleChoiceModelOutput, SequenceClassifierOutput
from transformers.models.bert.modeling_bert import BertPreTrainedModel

from ._own import OWN


class CausalBertConfig(BertConfig):
    """A BERT configuration with `is_decoder` and its own name: transformers' heads for BERT read [CLS]."""

    model_type = "infoflow-causal-bert"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class _CausalBert(BertPreTrainedModel):
    """The body and its text representation: the state of the last token that is not padding, which saw all others."""

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
        """Padding is on the right."""
        states_BTD = self.bert(input_ids, attention_mask=attention_mask, **inputs).last_hidden_state
        rows = input_ids.new_zeros(len(input_ids))
        last_B = rows + input_ids.shape[1] - 1 if attention_mask is None else attention_mask.sum(dim=1) - 1
        picked = last_B[:, None, None].expand(-1, 1, states_BTD.shape[-1])
        return self.classifier(self.dropout(states_BTD.gather(1, picked)[:, 0]))


class CausalBertForSequenceClassification(_CausalBert):
    """A class, or a number with one output, for a text."""

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
