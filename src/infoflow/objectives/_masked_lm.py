"""Masked language modelling, alone, with spans (SpanBERT), or with a question about two segments (BERT, ALBERT)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.corpus import PairKind, Vocabulary
from infoflow.foundation import Count, Probability, UserError

from ._batch import (
    NO_TARGET,
    SENTENCE_FIELDS,
    UNSUPERVISED,
    Batch,
    Corrupted,
    Example,
    Field,
    LossTerm,
    Noise,
    Shown,
    supervised_cross_entropy,
    tokens_of,
)
from ._encoder_decoder import framed
from ._masking import bert_budget, geometric_lengths, hide, mask_id, n_grams, word_spans, words_of
from ._objective import LOSS, AbstractObjective, Answers, Family, Metric, Reads

# Masked language modelling: some tokens are hidden or replaced, and predicted from both sides.
#
# Five published selection procedures differ in details that affect the rate, so each is reproduced exactly:
#
# | selection          | how many of T candidates                              | random ids from       |
# |--------------------|-------------------------------------------------------|-----------------------|
# | `dynamic` (RoBERTa) | `int(0.15 T + U)`, without replacement, anew per epoch | non-special ids      |
# | `static` (BERT)    | `min(20, max(1, round(0.15 len)))`, 10 fixed copies    | the full vocabulary   |
# | `bernoulli` (Hugging Face's collator) | each with probability 0.15         | the full vocabulary   |
# | `whole-word` (BERT's second release) | as `static`, whole words in random order, anew per epoch | non-special ids |
# | `n-gram` (ALBERT)  | likewise, n-grams of whole words, P(n) ∝ 1/n, n ≤ 3    | non-special ids       |

_LONGEST_NGRAM = 3  # words; ALBERT's
Selection = Literal["dynamic", "static", "bernoulli", "whole-word", "n-gram"]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedLM(AbstractObjective):
    """Predict selected tokens, of which 80 % become [MASK], 10 % become a random token and 10 % stay unchanged."""

    name: ClassVar[str] = "masked-lm"
    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "fill in"
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 1.0}

    selection: Selection = "dynamic"
    rate: Probability = 0.15  # share of candidates that are predicted
    mask_share: Probability = 0.8  # share of the selected tokens that become [MASK]
    random_share: Probability = 0.1  # share of the selected tokens that become random; the rest is unchanged
    specials: bool = False  # for `dynamic` as in fairseq: [CLS] and [SEP] are candidates too
    copies: Count = 10  # for `static`: number of different masks of a sentence, used in turn (BERT's dupe_factor)
    max_predictions: Count = 20  # per sentence, for `static`, `whole-word` and `n-gram`

    @property
    def predicted_share(self) -> float:
        """The masking rate, which is a share of the candidates."""
        return self.rate

    @property
    def needs_mask(self) -> bool:
        return True

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Select positions, and then hide, replace or keep each one; only selected positions have labels."""
        tokens = example.text
        positions = self._select(tokens, generator, vocabulary)
        labels = np.full(len(tokens), UNSUPERVISED, dtype=np.int64)
        labels[positions] = tokens[positions]
        selected = np.zeros(len(tokens), dtype=bool)
        selected[positions] = True
        inputs = hide(
            tokens,
            positions,
            generator,
            vocabulary,
            self.name,
            mask_share=self.mask_share,
            random_share=self.random_share,
            random_ids="all" if self.selection in ("static", "bernoulli") else "ordinary",
        )
        return Corrupted(arrays={"input_ids": inputs, "labels": labels}, selected=selected)

    def noise_epoch(self, epoch: int) -> int:
        """The copy used in an epoch: static masks have `copies` versions, used in turn."""
        return epoch % self.copies if self.selection == "static" else epoch

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the selected tokens."""
        hidden = module.base_model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        return {self.name: supervised_cross_entropy(module, hidden, batch.labels, label_smoothing)}

    def _select(self, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary) -> np.ndarray:
        if self.selection in ("whole-word", "n-gram"):
            words = words_of(tokens, vocabulary)
            budget = bert_budget(len(tokens), len(words.places), self.rate, self.max_predictions)
            return n_grams(words, budget, _LONGEST_NGRAM if self.selection == "n-gram" else 1, generator)
        include_specials = self.specials and self.selection == "dynamic"
        candidates = np.arange(len(tokens)) if include_specials else (~vocabulary.is_special[tokens]).nonzero()[0]
        draws = generator.random(len(candidates) + 1)
        if self.selection == "bernoulli":
            return candidates[draws[1:] < self.rate]
        if self.selection == "static":
            count = bert_budget(len(tokens), len(candidates), self.rate, self.max_predictions)
        else:
            count = int(self.rate * len(candidates) + draws[0])  # stochastic rounding, which is right on average
        return candidates[draws[1:].argsort()[:count]]


BOUNDARY = "span-boundary"
_TARGETS = 20  # most tokens of a span predicted from its boundary, as later positions have no embedding


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SpanBert(AbstractObjective):
    r"""Predict masked spans of whole words, also from the spans' boundaries ([@joshi2020spanbert]).

    `ceil(.15 · len)` tokens are masked in spans of k words, \(P(k) \propto p (1-p)^{k-1}\), k ≤ 10, p = .2 (as in the
    paper; its code uses .3). Token i of a span (s..e) is predicted from \([h_{s-1}; h_{e+1}; p_{i-s}]\). Random tokens
    are as frequent as in the training text. All tokens of a span are treated alike (80 % [MASK], 10 % random, 10 %
    kept), as in the paper (unverified). With `together=False`, each token is treated separately, which is the code's
    default. The second term has weight 1 here, but 0 by default in the code. The code divides this term by its number
    of tokens plus one, we divide it by the number of tokens.
    """

    name: ClassVar[str] = "spanbert"
    layout: ClassVar[Layout] = "encoder-spans"
    family: ClassVar[Family] = "fill in"
    needs_counts: ClassVar[bool] = True
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 1.0, BOUNDARY: 1.0}
    fields: ClassVar[dict[str, Field]] = {
        **SENTENCE_FIELDS,
        "left": Field(),
        "right": Field(),
        "place": Field(pad=UNSUPERVISED),
    }

    rate: Probability = 0.15  # share of the sequence that is predicted
    geometric_p: Probability = 0.2
    longest: Count = 10  # words of a span
    together: bool = True
    random_ids: Literal["corpus", "ordinary"] = "corpus"

    @property
    def predicted_share(self) -> float:
        return self.rate

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Mask spans; `left` and `right` are the neighbours of a masked token's span, `place` the token's index in it.

        `place` is UNSUPERVISED if the boundary does not predict the token: beyond 20 tokens, and in a span at an edge
        of the sequence.
        """
        tokens, num = example.text, len(example.text)
        lengths = geometric_lengths(self.geometric_p, self.longest)
        positions = word_spans(words_of(tokens, vocabulary), math.ceil(self.rate * num), lengths, generator)
        labels, place = np.full((2, num), UNSUPERVISED, dtype=np.int64)
        left, right = np.zeros((2, num), dtype=np.int64)
        labels[positions] = tokens[positions]
        fates: list[int] = []  # groups of positions that are treated alike
        for number, (first, end) in enumerate(_runs(positions.tolist())):
            fates += [number] * (end - first)
            left[first:end], right[first:end] = max(first - 1, 0), min(end, num - 1)
            if first > 0 and end < num:
                place[first : min(end, first + _TARGETS)] = range(min(end - first, _TARGETS))
        together = np.array(fates, dtype=np.int64) if self.together else None
        shown = hide(tokens, positions, generator, vocabulary, self.name, random_ids=self.random_ids, together=together)
        arrays = {"input_ids": shown, "labels": labels, "left": left, "right": right, "place": place}
        return Corrupted(arrays=arrays, selected=labels != UNSUPERVISED)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The masked LM; the boundary head is saved separately."""
        return module.encoder  # type: ignore[return-value]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"masked-lm": batch.supervised_tokens, BOUNDARY: int((batch["place"] != UNSUPERVISED).sum())}

    def guesses(self, batch: Batch, unigram: np.ndarray) -> dict[str, float]:
        targets = {"masked-lm": batch.labels != UNSUPERVISED, BOUNDARY: batch["place"] != UNSUPERVISED}
        return {term: float(unigram[batch.labels[chosen].cpu().numpy()].sum()) for term, chosen in targets.items()}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the masked tokens, predicted from their own states and from their spans' boundaries."""
        model: Any = module
        hidden = model.encoder.base_model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask
        ).last_hidden_state
        chosen = batch["place"] != UNSUPERVISED
        row = chosen.nonzero()[:, 0]
        logits = model.boundary_logits(
            hidden[row, batch["left"][chosen]], hidden[row, batch["right"][chosen]], batch["place"][chosen]
        ).float()
        targets = batch.labels[chosen]
        total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)
        return {
            "masked-lm": supervised_cross_entropy(model.encoder, hidden, batch.labels, label_smoothing),
            BOUNDARY: LossTerm(total=total, count=targets.numel()),
        }

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """The usual lines, and each masked token with the neighbours of its span and its position in the span."""
        plain = AbstractObjective.shown(self, batch, names, target_names)
        left, right = (tokens_of(batch.input_ids[0][batch[side][0]], names) for side in ("left", "right"))
        tokens, places = tokens_of(batch.labels, names), batch["place"].flatten().tolist()
        boundary = [
            NO_TARGET if place == UNSUPERVISED else f"{token} ({one} _ {other}, {place + 1})"
            for token, one, other, place in zip(tokens, left, right, places, strict=True)
        ]
        return replace(plain, targets={**plain.targets, BOUNDARY: boundary})


def _runs(positions: list[int]) -> list[tuple[int, int]]:
    """Begin and end of each run of consecutive positions; `positions` must be ascending."""
    begins = [here for before, here in pairwise([-2, *positions]) if here > before + 1]
    ends = [here + 1 for here, after in pairwise([*positions, -2]) if after != here + 1]
    return list(zip(begins, ends, strict=True))


IS_RANDOM, IS_SWAPPED = "is_random", "is_swapped"
"""Keys of `Example.labels`: whether the second segment is from another document, and whether the two were swapped."""
_CHANCE = 0.05  # required accuracy above the most frequent answer's share


class AbstractPairObjective(AbstractObjective):
    """Predict masked tokens in [CLS] A [SEP] B [SEP] and, from [CLS], answer a binary question about the pair.

    The loss is the mean over masked tokens plus the mean over pairs.
    """

    layout: ClassVar[Layout] = "encoder-pair"
    family: ClassVar[Family] = "fill in"
    reads: ClassVar[Reads] = "pair"
    fields: ClassVar[Mapping[str, Field]] = {**SENTENCE_FIELDS, "token_type_ids": Field(), "pair": Field()}
    question: ClassVar[str]  # name of the loss term and of the accuracy
    answer_key: ClassVar[str]  # key of the answer in `Example.labels`
    pairs: ClassVar[PairKind]  # kind of pairs
    truths: ClassVar[tuple[str, str]]  # in words, the answers that the labels 0 and 1 stand for

    def __init_subclass__(cls) -> None:
        if "question" in cls.__dict__:
            cls.term_weights = {"masked-lm": 1.0, cls.question: 1.0}
            accuracy = Metric(name=f"{cls.question} accuracy", baseline="most frequent", better="higher", gain=_CHANCE)
            cls.metrics = (LOSS, accuracy)

    selection: Selection
    rate: float

    @property
    def masked_lm(self) -> MaskedLM:
        return MaskedLM(selection=self.selection, rate=self.rate)

    @property
    def predicted_share(self) -> float:
        return self.masked_lm.predicted_share

    def noise_epoch(self, epoch: int) -> int:
        return self.masked_lm.noise_epoch(epoch)

    def on_text(self) -> AbstractObjective:
        """The objective for a single text, which only predicts the masked tokens."""
        return self.masked_lm

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Join two segments into one sequence and mask tokens in both."""
        mask_id(vocabulary, self.name)  # raises under this objective's name instead of the inner masked LM's
        if len(example.texts) != 2 or self.answer_key not in example.labels:
            raise UserError(
                f"{self.name} reads pairs of segments, with the label {self.answer_key}. "
                f"Got {len(example.texts)} texts.\n"
                "Give it rows of pairs from a corpus with documents."
            )
        first, second = example.texts
        head = framed(first, vocabulary)
        tokens = np.concatenate([head, second, [vocabulary.end]]).astype(np.int64)
        masked = self.masked_lm.corrupt(Example(texts=(tokens,)), generator, vocabulary)
        segments = (np.arange(len(tokens)) >= len(head)).astype(np.int64)
        pair = np.array(int(example.labels[self.answer_key]))
        return Corrupted(arrays={**masked.arrays, "token_type_ids": segments, "pair": pair}, selected=masked.selected)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The masked LM; the pooler and the pair head are saved separately."""
        return module.encoder  # type: ignore[return-value]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"masked-lm": batch.supervised_tokens, self.question: len(batch)}

    def guesses(self, batch: Batch, unigram: Float[np.ndarray, " token"]) -> dict[str, float]:
        """Token frequencies for the masked tokens, and a fair coin for the question."""
        return {**super().guesses(batch, unigram), self.question: len(batch) * float(np.log(2))}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        model: Any = module
        hidden = self._hidden(model, batch)
        total = F.cross_entropy(model.pair_logits(hidden).float(), batch["pair"], reduction="sum")
        return {
            "masked-lm": supervised_cross_entropy(model.encoder, hidden, batch.labels, label_smoothing),
            self.question: LossTerm(total=total, count=len(batch)),
        }

    def answers(self, module: PreTrainedModel, batch: Batch, noise: Noise) -> dict[str, Answers]:
        model: Any = module
        logits = model.pair_logits(self._hidden(model, batch)).float()
        scores = (logits[:, 1] - logits[:, 0]).detach().cpu().numpy()
        rows = np.arange(len(batch))
        truth = batch["pair"].cpu().numpy()
        return {f"{self.question} accuracy": Answers(scores=scores, truth=truth, example=rows, kind="accuracy")}

    def example(
        self, sentences: Sequence[np.ndarray], vocabulary: Vocabulary, translation: np.ndarray | None = None
    ) -> Example:
        """Build an example of the two halves of the text in their order; a single sentence is cut in the middle."""
        parts = list(sentences) if len(sentences) > 1 else np.array_split(sentences[0], 2)
        half = (len(parts) + 1) // 2
        texts = np.concatenate(parts[:half]), np.concatenate(parts[half:])
        return Example(texts=texts, labels={self.answer_key: np.array(0)})

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """What BERT's three embeddings encode (token, segment, position), and the targets."""
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
    """BERT: masked LM and next-sentence prediction ([@devlin2019bert]); `selection` as in `masked-lm`.

    Pairs are not balanced: a chunk of one sentence always gets a random second segment.
    """

    name: ClassVar[str] = "masked-lm-nsp"
    question: ClassVar[str] = "next-sentence"
    answer_key: ClassVar[str] = IS_RANDOM
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
    answer_key: ClassVar[str] = IS_SWAPPED
    pairs: ClassVar[PairKind] = "order"
    truths: ClassVar[tuple[str, str]] = ("in order", "swapped")

    selection: Selection = "n-gram"
    rate: Probability = 0.15
