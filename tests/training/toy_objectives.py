"""Objectives that ask for more than those of the library: pairs and two terms; two models, of which one is kept."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from training.tiny import VOCABULARY, Rows
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from infoflow.objectives import (
    SENTENCE_FIELDS,
    AbstractObjective,
    Corrupted,
    Example,
    Field,
    LossTerm,
    MaskedLM,
    supervised_cross_entropy,
)
from infoflow.training import TrainingData

BERT = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


class Pairs(Rows):
    """Two texts an example."""

    def example(self, index: int) -> Example:
        tokens = self.row(index).astype(np.int64)
        middle = len(tokens) // 2
        return Example(texts=(tokens[1:middle], tokens[middle:-1]))


def pair_data(num: int = 40, seed: int = 0) -> TrainingData:
    return TrainingData(source=Pairs(num, seed), vocabulary=VOCABULARY)


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(AbstractObjective):
    """Masked tokens, and whether the two texts stand in their order."""

    name: ClassVar[str] = "sentence-order"
    layout: ClassVar[str] = "encoder"
    family: ClassVar[str] = "discriminate"
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 1.0, "order": 0.5}
    fields: ClassVar[dict[str, Field]] = {**SENTENCE_FIELDS, "token_type_ids": Field(pad=0), "order": Field()}

    def corrupt(self, example, generator, vocabulary) -> Corrupted:
        swapped = bool(generator.random() < 0.5)
        first, second = example.texts[::-1] if swapped else example.texts
        tokens = np.array([vocabulary.start, *first, vocabulary.end, *second, vocabulary.end])
        masked = MaskedLM(rate=0.3).corrupt(Example(texts=(tokens,)), generator, vocabulary)
        segments = (np.arange(len(tokens)) > len(first) + 1).astype(np.int64)
        arrays = {**masked.arrays, "token_type_ids": segments, "order": np.array(int(swapped))}
        return replace(masked, arrays=arrays)

    def counts(self, batch) -> dict[str, int]:
        return {"masked-lm": batch.supervised_tokens, "order": len(batch)}

    def guesses(self, batch, unigram) -> dict[str, float]:
        return {**super().guesses(batch, unigram), "order": len(batch) * float(np.log(2))}

    def loss(self, module, batch, noise, label_smoothing=0.0) -> dict[str, LossTerm]:
        segments = batch["token_type_ids"]
        states = module.bert(batch.input_ids, batch.attention_mask, segments)
        supervised = batch.labels != -100
        logits = module.cls.predictions(states.last_hidden_state[supervised])
        tokens = F.cross_entropy(logits, batch.labels[supervised], reduction="sum")
        order = F.cross_entropy(module.cls.seq_relationship(states.pooler_output), batch["order"], reduction="sum")
        return {
            "masked-lm": LossTerm(total=tokens, count=int(supervised.sum())),
            "order": LossTerm(total=order, count=len(batch)),
        }


def pair_model() -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(BertConfig(**BERT)).train()


class TwoModelsConfig(PreTrainedConfig):
    model_type = "toy-two-models"
    sub_configs: ClassVar[dict] = {"small": BertConfig, "large": BertConfig}
    small: BertConfig | None = None
    large: BertConfig | None = None


class TwoModels(PreTrainedModel):
    """A generator and a discriminator with the same embeddings."""

    config_class = TwoModelsConfig
    base_model_prefix = "large"
    _supports_sdpa = True

    def __init__(self, config: TwoModelsConfig) -> None:
        super().__init__(config)
        self.small, self.large = BertForMaskedLM(config.small), BertForTokenClassification(config.large)
        self.small.bert.embeddings.word_embeddings = self.large.bert.embeddings.word_embeddings
        self.small.tie_weights()


def two_models(seed: int = 0) -> TwoModels:
    torch.manual_seed(seed)
    small, large = BertConfig(**{**BERT, "num_hidden_layers": 1}), BertConfig(**BERT, num_labels=1)
    return TwoModels(TwoModelsConfig(small=small, large=large)).train()


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens(AbstractObjective):
    """One model restores masked tokens; the other tells which of the tokens that the first one sampled are wrong."""

    name: ClassVar[str] = "replaced-tokens"
    layout: ClassVar[str] = "encoder"
    family: ClassVar[str] = "discriminate"
    draws: ClassVar[bool] = True
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 1.0, "replaced": 5.0}
    fields: ClassVar[dict[str, Field]] = {**SENTENCE_FIELDS, "clean": Field(pad="source")}

    def corrupt(self, example, generator, vocabulary) -> Corrupted:
        masked = MaskedLM(rate=0.4, random_share=0.0).corrupt(example, generator, vocabulary)
        return replace(masked, arrays={**masked.arrays, "clean": example.text})

    def exported(self, module) -> BertForTokenClassification:
        return module.large

    def counts(self, batch) -> dict[str, int]:
        return {"masked-lm": batch.supervised_tokens, "replaced": batch.source_tokens}

    def sampled(self, module, batch, noise) -> tuple[torch.Tensor, torch.Tensor]:
        """The text with the generator's samples, and the generator's states."""
        states = module.small.bert(batch.input_ids, batch.attention_mask).last_hidden_state
        chosen = batch.labels != -100
        with torch.no_grad():
            logits = module.small.cls(states[chosen]).float()
            uniform = noise.uniform("sample", chosen, logits.shape[-1]).clamp(1e-9, 1 - 1e-7)
            drawn = (logits - (-uniform.log()).log()).argmax(dim=-1)
        return batch["clean"].masked_scatter(chosen, drawn), states

    def loss(self, module, batch, noise, label_smoothing=0.0) -> dict[str, LossTerm]:
        text, states = self.sampled(module, batch, noise)
        real = torch.ones_like(text) if batch.attention_mask is None else batch.attention_mask
        logits = module.large(text, real).logits[..., 0]
        wrong = (text != batch["clean"]).float()
        losses = F.binary_cross_entropy_with_logits(logits, wrong, reduction="none") * real
        return {
            "masked-lm": supervised_cross_entropy(module.small, states, batch.labels),
            "replaced": LossTerm(total=losses.sum(), count=batch.source_tokens),
        }
