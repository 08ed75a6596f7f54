"""Skip-gram with negative sampling (word2vec): one vector per word, trained to predict the word's neighbours."""

# P pair, K negative

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Count, Limits, UserError

from ._batch import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Example, Field, LossTerm, Noise, Shown, tokens_of
from ._masking import text_counts
from ._objective import AbstractObjective, Answers, Family, Metric

Threshold = Annotated[float, Limits(above=0, at_most=1)]
Few = Annotated[int, Limits(at_least=1, at_most=1000)]
PAIR = "pair"
Subsampling = Literal["code", "paper"]
_FLATTENED = 0.75  # exponent of the frequencies for drawing negatives


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SkipGram(AbstractObjective):
    r"""Distinguish a word's neighbours from random words ([@mikolov2013distributed]).

    $$ -\log \sigma(u_o \cdot v_c) - \sum_{k} \log \sigma(-u_k \cdot v_c) $$

    Frequent words are removed at random *before* windows are cut, so that windows reach further. The half window of
    each word is uniform on 1..`window`. Negatives are drawn by frequency to the power .75; a negative that is the true
    word is skipped, not drawn again. Words with fewer than `min_count` occurrences are removed. Words are the tokens of
    the study's tokenizer, except special tokens.

    We have verified neither that 5 to 20 negatives are meant for small data, nor the paper's threshold (1e-5) and rule
    (`subsampling="paper"`); the defaults are those of the released code. Vectors are as long as the study's models are
    wide (100 in word2vec), and optimiser, schedule and number of passes are those of the study (in word2vec, SGD with a
    rate that falls linearly from .025 over 5 passes).
    """

    name: ClassVar[str] = "skip-gram"
    layout: ClassVar[Layout] = "static"
    family: ClassVar[Family] = "static"
    needs_counts: ClassVar[bool] = True
    term_weights: ClassVar[dict[str, float]] = {"skip-gram": 1.0}
    fields: ClassVar[dict[str, Field]] = {
        **SENTENCE_FIELDS,
        "centers": Field(pad=UNSUPERVISED),
        "negatives": Field(pad=UNSUPERVISED),
    }
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name=f"{PAIR} AUC", baseline="chance", better="higher", gain=0.1),)

    window: Few = 5  # maximum number of words on each side
    negatives: Few = 5  # negatives per pair
    threshold: Threshold = 1e-3  # relative frequency above which words are subsampled
    subsampling: Subsampling = "code"  # rule of subsampling
    min_count: Count = 5  # occurrences in the training text

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Return the pairs of the text: `centers`, their neighbours as `labels`, and `negatives`, (pair, draw)."""
        tokens = example.text
        counts, special = _ByIdentity(text_counts(vocabulary)), vocabulary.special
        known = _frequencies(counts, special, self.min_count, self.threshold, self.subsampling)
        stays = generator.random(len(tokens)) < known.kept[tokens]
        words = tokens[stays]
        centers, contexts = word_pairs(words, generator.integers(1, self.window + 1, size=len(words)))
        drawn = np.searchsorted(known.negatives, generator.random((len(contexts), self.negatives)), side="right")
        # a draw equal to the pair's own context is left out, not repeated
        negatives = np.where(drawn == contexts[:, None], UNSUPERVISED, drawn).astype(np.int64)
        arrays = {"input_ids": tokens, "labels": contexts, "centers": centers, "negatives": negatives}
        return Corrupted(arrays=arrays, selected=stays)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of "is it the true word?", summed over a pair's word and negatives; the count is of pairs."""
        true, false, drawn = _scores(module, batch)
        total = F.softplus(-true).sum() + (F.softplus(false) * drawn).sum()
        return {self.name: LossTerm(total=total, count=len(true))}

    def guesses(self, batch: Batch, unigram: Float[np.ndarray, " token"]) -> dict[str, float]:
        """A frequency baseline: the odds that a word is true are its share of true words over that of negatives."""
        frequency = np.exp(-np.asarray(unigram, dtype=np.float64))
        kept_share = frequency * keep_probability(frequency, self.threshold, self.subsampling)
        drawn = frequency**0.75
        odds = np.log(kept_share / kept_share.sum()) - np.log(self.negatives * drawn / drawn.sum())
        labels, negatives = batch.labels.cpu().numpy(), batch["negatives"].cpu().numpy()
        true, false = odds[labels[labels != UNSUPERVISED]], odds[negatives[negatives != UNSUPERVISED]]
        return {self.name: float(np.logaddexp(0, -true).sum() + np.logaddexp(0, false).sum())}

    def answers(self, module: PreTrainedModel, batch: Batch, noise: Noise) -> dict[str, Answers]:
        """The scores of the true words, and of the first negative of each true word.

        At most as many pairs as the text has tokens are used; they are spread evenly.
        """
        true, false, drawn = (part.detach().cpu().numpy() for part in _scores(module, batch))
        rows = (batch["centers"] != UNSUPERVISED).nonzero()[:, 0].cpu().numpy()
        step = max(1, math.ceil(len(true) / max(batch.source_tokens, 1)))
        true, false, drawn, rows = true[::step], false[::step, 0], drawn[::step, 0], rows[::step]
        scores = np.concatenate([true, false[drawn]])
        truth = np.repeat(np.array([1, 0]), [len(true), int(drawn.sum())])
        examples = np.concatenate([rows, rows[drawn]])
        return {f"{PAIR} AUC": Answers(scores=scores, truth=truth, example=examples, kind="AUC")}

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """The text, its true pairs, and the first negative of each pair."""
        drawn = batch["negatives"]
        centers, contexts, others = (tokens_of(ids, names) for ids in (batch["centers"], batch.labels, drawn[..., 0]))
        return Shown(
            inputs={"tokens": tokens_of(batch.input_ids, names)},
            targets={
                "true": [f"({center}, {word})" for center, word in zip(centers, contexts, strict=True)],
                "drawn": [f"({center}, {word})" for center, word in zip(centers, others, strict=True)],
            },
        )


def _scores(module: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of true words (pair,) and negatives (pair, draw), and the mask of negatives that are not the true word."""
    model: Any = module
    real = batch["centers"] != UNSUPERVISED
    centers, contexts, negatives = batch["centers"][real], batch.labels[real], batch["negatives"][real]
    drawn = negatives != UNSUPERVISED
    return model.scores(centers, contexts).float(), model.scores(centers, negatives.clamp(min=0)).float(), drawn


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordFrequencies:
    """Statistics of the training text for sampling; they are 0 for ids that are too rare or are not text."""

    kept: Float[np.ndarray, " id"]  # probability that an occurrence is kept
    negatives: Float[np.ndarray, " id"]  # cumulative probability of being drawn as a negative


def keep_probability(
    frequency: Float[np.ndarray, " id"], threshold: float, rule: Subsampling = "code"
) -> Float[np.ndarray, " id"]:
    r"""Probability that an occurrence of a word with the relative `frequency` f stays in the text.

    $$ \min\left(1, \left(\sqrt{f/t} + 1\right) \frac{t}{f}\right) $$

    This is the rule of the released code. The paper's rule, unverified, keeps a word with probability \(\sqrt{t/f}\).
    """
    with np.errstate(divide="ignore"):
        rarity = threshold / np.asarray(frequency, dtype=np.float64)
    share = np.sqrt(rarity) if rule == "paper" else np.sqrt(rarity) + rarity
    return np.minimum(share, 1.0)


def word_pairs(
    tokens: Int[np.ndarray, " token"], half: Int[np.ndarray, " token"]
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Pair each token with those at most `half` positions away; returns centers and contexts, in order of position.

    >>> [part.tolist() for part in word_pairs(np.array([7, 8, 9]), np.array([2, 1, 1]))]
    [[7, 7, 8, 8, 9], [8, 9, 7, 9, 8]]
    """
    places = np.arange(len(tokens))
    apart = np.abs(places[:, None] - places)
    center, context = np.nonzero((apart > 0) & (apart <= half[:, None]))
    return tokens[center], tokens[context]


@dataclass(frozen=True, slots=True, eq=False)
class _ByIdentity:
    """An array as a cache key, compared by identity, because vocabularies are compared without their counts."""

    counts: np.ndarray

    def __hash__(self) -> int:
        return id(self.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.counts is self.counts


@lru_cache(maxsize=8)
def _frequencies(
    key: _ByIdentity, special: tuple[int, ...], min_count: int, threshold: float, rule: Subsampling
) -> WordFrequencies:
    counts = np.asarray(key.counts, dtype=np.float64).copy()
    counts[list(special)] = 0
    counts[counts < min_count] = 0
    known = counts > 0
    if not known.any():
        raise UserError(
            f"skip-gram reads words that occur at least {min_count} times in the training text. Got none.\n"
            "Give more text, or lower min_count under [variants.NAME]."
        )
    kept = np.where(known, keep_probability(np.where(known, counts, 1) / counts.sum(), threshold, rule), 0.0)
    cumulative = np.cumsum(counts**_FLATTENED)
    cumulative /= cumulative[-1]  # exactly 1 from the last known id on; no draw reaches 1
    return WordFrequencies(kept=kept, negatives=cumulative)
