"""BERT's and ALBERT's objectives: masked tokens, and a question about two segments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import PairKind, Vocabulary
from infoflow.foundation import Probability, UserError

from ._batch import SENTENCE_FIELDS, Batch, Corrupted, Example, Field, LossTerm, Noise, supervised_cross_entropy
from ._encoder_decoder import framed
from ._masked_lm import MaskedLM, Selection
from ._masking import mask_id
from ._objective import LOSS, AbstractObjective, Answers, Family, Metric, Reads
from ._shown import Shown

IS_RANDOM, IS_SWAPPED = "is_random", "is_swapped"
"""Keys of `Example.labels`: whether the second segment is from another document; whether the two were swapped."""
_CHANCE = 0.05  # required accuracy above the most frequent answer's share


class AbstractPairObjective(AbstractObjective):
    """[CLS] A [SEP] B [SEP]: masked tokens, and a binary question about the pair, answered at [CLS] by a pooler.

    The loss is the mean over masked tokens plus the mean over pairs.
    """

    layout: ClassVar[Layout] = "encoder-pair"
    family: ClassVar[Family] = "fill in"
    reads: ClassVar[Reads] = "pair"
    fields: ClassVar[Mapping[str, Field]] = {**SENTENCE_FIELDS, "token_type_ids": Field(), "pair": Field()}
    question: ClassVar[str]  # name of the loss term and of the accuracy
    asked: ClassVar[str]  # key of the answer in `Example.labels`
    pairs: ClassVar[PairKind]  # kind of pairs
    truths: ClassVar[tuple[str, str]]  # the two answers in words: to the label 0, to 1

    def __init_subclass__(cls) -> None:
        if "question" in cls.__dict__:
            cls.term_weights = {"masked-lm": 1.0, cls.question: 1.0}
            accuracy = Metric(name=f"{cls.question} accuracy", baseline="most frequent", better="higher", gain=_CHANCE)
            cls.metrics = (LOSS, accuracy)

    selection: Selection
    rate: float

    @property
    def masked_lm(self) -> MaskedLM:
        """The masking of tokens."""
        return MaskedLM(selection=self.selection, rate=self.rate)

    @property
    def predicted_share(self) -> float:
        return self.masked_lm.predicted_share

    def noise_epoch(self, epoch: int) -> int:
        return self.masked_lm.noise_epoch(epoch)

    def on_text(self) -> AbstractObjective:
        """The objective for a single text: only the masked tokens."""
        return self.masked_lm

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Two segments in one sequence, with tokens masked in both."""
        mask_id(vocabulary, self.name)  # raises under this objective's name instead of the inner masked LM's
        if len(example.texts) != 2 or self.asked not in example.labels:
            raise UserError(
                f"{self.name} reads pairs of segments, with the label {self.asked}. Got {len(example.texts)} texts.\n"
                "Give it rows of pairs from a corpus with documents."
            )
        first, second = example.texts
        head = framed(first, vocabulary)
        tokens = np.concatenate([head, second, [vocabulary.end]]).astype(np.int64)
        masked = self.masked_lm.corrupt(Example(texts=(tokens,)), generator, vocabulary)
        segments = (np.arange(len(tokens)) >= len(head)).astype(np.int64)
        pair = np.array(int(example.labels[self.asked]))
        return Corrupted(arrays={**masked.arrays, "token_type_ids": segments, "pair": pair}, selected=masked.selected)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The masked LM; pooler and pair head are saved separately."""
        return module.encoder  # type: ignore[return-value]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"masked-lm": batch.supervised_tokens, self.question: len(batch)}

    def guesses(self, batch: Batch, unigram: Float[np.ndarray, " token"]) -> dict[str, float]:
        """For the question: a fair coin."""
        return {**super().guesses(batch, unigram), self.question: len(batch) * float(np.log(2))}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the masked tokens, and of the answer."""
        model: Any = module
        hidden = self._hidden(model, batch)
        total = F.cross_entropy(model.pair_logits(hidden).float(), batch["pair"], reduction="sum")
        return {
            "masked-lm": supervised_cross_entropy(model.encoder, hidden, batch.labels, label_smoothing),
            self.question: LossTerm(total=total, count=len(batch)),
        }

    def answers(self, module: PreTrainedModel, batch: Batch, noise: Noise) -> dict[str, Answers]:
        """The predictions about the pairs, with the truth."""
        model: Any = module
        logits = model.pair_logits(self._hidden(model, batch)).float()
        scores = (logits[:, 1] - logits[:, 0]).detach().cpu().numpy()
        rows = np.arange(len(batch))
        truth = batch["pair"].cpu().numpy()
        return {f"{self.question} accuracy": Answers(scores=scores, truth=truth, example=rows, kind="accuracy")}

    def example(
        self, sentences: Sequence[np.ndarray], vocabulary: Vocabulary, translation: np.ndarray | None = None
    ) -> Example:
        """The text's halves in their order; one sentence is cut in its middle."""
        parts = list(sentences) if len(sentences) > 1 else np.array_split(sentences[0], 2)
        half = (len(parts) + 1) // 2
        texts = np.concatenate(parts[:half]), np.concatenate(parts[half:])
        return Example(texts=texts, labels={self.asked: np.array(0)})

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """BERT's three embeddings: token, segment, position."""
        plain = super().shown(batch, names, target_names)
        segments = ["AB"[segment] for segment in batch["token_type_ids"].flatten().tolist()]
        positions = list(map(str, range(len(segments))))
        return replace(
            plain,
            inputs={**plain.inputs, "segments": segments, "positions": positions},
            targets={**plain.targets, self.question: [self.truths[int(batch["pair"])]]},
        )

    def _hidden(self, model: Any, batch: Batch) -> torch.Tensor:
        return model.encoder.base_model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, token_type_ids=batch["token_type_ids"]
        ).last_hidden_state


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class NextSentence(AbstractPairObjective):
    """BERT: masked LM and next-sentence prediction ([@devlin2019bert]); masks as `selection` of `masked-lm`.

    Pairs are not balanced: a chunk of one sentence always gets a random second segment.
    """

    name: ClassVar[str] = "masked-lm-nsp"
    question: ClassVar[str] = "next-sentence"
    asked: ClassVar[str] = IS_RANDOM
    pairs: ClassVar[PairKind] = "next"
    truths: ClassVar[tuple[str, str]] = ("B follows A", "B is from another document")

    selection: Selection = "dynamic"
    rate: Probability = 0.15


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceOrder(AbstractPairObjective):
    """ALBERT: masked n-grams of words, and whether two consecutive segments are in order ([@lan2020albert])."""

    name: ClassVar[str] = "masked-lm-sop"
    question: ClassVar[str] = "sentence-order"
    asked: ClassVar[str] = IS_SWAPPED
    pairs: ClassVar[PairKind] = "order"
    truths: ClassVar[tuple[str, str]] = ("in order", "swapped")

    selection: Selection = "n-gram"
    rate: Probability = 0.15
