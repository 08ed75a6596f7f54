"""A bidirectional language model as in ELMo: one model predicts the next token, another the previous one."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary

from ._batch import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Field
from ._example import Example
from ._loss import LossTerm, supervised_cross_entropy
from ._noise import Noise
from ._objective import AbstractObjective, Family

FORWARD, BACKWARD = "forward", "backward"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class BiLM(AbstractObjective):
    r"""Predict each token from those before it, and with another stack from those after it ([@peters2018deep]).

    $$ \tfrac12 \overline{-\log p(x_{t+1} \mid x_{\le t})} + \tfrac12 \overline{-\log p(x_{t-1} \mid x_{\ge t})} $$

    The half is from the released code (bilm-tf); that the paper sums the two is unverified. The two directions share
    embeddings and softmax, and no layer mixes them. Only the loss follows the released recipe: its sampled softmax
    (8192), Adagrad (0.2), clipping at 10 and the factor 20 on gradients are replaced by the settings of all objectives.

    For two stacks of BERT's blocks, the forward one, a causal LM, is saved and measured as the model; the backward one
    is saved separately. ELMo, whose layers have states of both directions, is saved whole. Both directions have the
    same number and frequency of labels if texts begin as often as they end: one frequency baseline serves both.
    """

    name: ClassVar[str] = "bilm"
    layout: ClassVar[Layout] = "bidirectional-pair"
    family: ClassVar[Family] = "predict next"
    term_weights: ClassVar[dict[str, float]] = {FORWARD: 0.5, BACKWARD: 0.5}
    fields: ClassVar[dict[str, Field]] = {
        **SENTENCE_FIELDS,
        "reversed_ids": Field(pad="source"),  # the text from its end; padding stays on the right
        "reversed_labels": Field(pad=UNSUPERVISED),
    }

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The text and its reverse, each with its next tokens as labels."""
        tokens = example.text
        labels = {"labels": _next(tokens), "reversed_labels": _next(tokens[::-1])}
        arrays = {**self.reads_instead(tokens), **labels}
        return Corrupted(arrays=arrays, selected=np.zeros(len(tokens), dtype=bool))

    def reads_instead(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The two directions read the same tokens."""
        return {"input_ids": inputs, "reversed_ids": inputs[::-1]}

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The forward stack with the head; the backward one is saved separately.

        ELMo, whose layers have both, is whole.
        """
        return getattr(module, "forwards", module)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the next tokens and of the previous ones."""
        model: Any = module
        head = self.exported(module)  # both directions share it
        ahead, back = model.both_ways(batch.input_ids, batch["reversed_ids"])
        return {
            FORWARD: supervised_cross_entropy(head, ahead, batch.labels, label_smoothing),
            BACKWARD: supervised_cross_entropy(head, back, batch["reversed_labels"], label_smoothing),
        }


def _next(tokens: np.ndarray) -> np.ndarray:
    return np.append(tokens[1:], UNSUPERVISED)
