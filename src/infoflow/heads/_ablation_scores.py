"""Scores of ablated variants on the same sentences, and tests of their paired differences."""

# V variant (0: the model as it is), K bootstrap block (64), S statistic that adds up over sentences, R replicate

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, replicate_weights, stream
from infoflow.models import BleuStatistics, Model, as_model_writes, bleu_by_block, translate

from ._ablate import ablate
from ._head_sets import AblationMode, HeadSet
from ._scored import ScoredBatch, SentenceScorer, VariantLosses

PERMUTATIONS = 20_000  # smallest p is 1/20,001: small enough to survive a correction for a few hundred heads
_CHUNK = 64


def sign_flip_p(differences: Float[np.ndarray, "test block"]) -> Float[np.ndarray, " test"]:
    r"""Two-sided p-value of each row's sum under random signs of its blocks.

    $$ p = \frac{1 + \#\{ |\sum_k s_k d_k| \ge |\sum_k d_k| \}}{1 + P}, \qquad s_k = \pm 1 $$

    $d_k$ is the paired difference summed over the sentences of bootstrap block k. Under the null hypothesis, a change
    only adds noise, and differences are symmetric about 0. The same P = 20,000 random signs are used for all rows. If
    a sum is NaN, so is its p-value.
    """
    size = PERMUTATIONS, differences.shape[1]
    signs = stream("sign-flips", 0).integers(0, 2, size=size, dtype=np.int8) * 2.0 - 1
    # A different order of summation changes the last digit, and a row of zeros must get p = 1.
    observed = np.abs(differences.sum(axis=1)) * (1 - 1e-12)
    larger = np.zeros(len(differences))
    for start in range(0, len(differences), _CHUNK):
        rows = slice(start, start + _CHUNK)
        larger[rows] = (np.abs(signs @ differences[rows].T) >= observed[rows]).sum(axis=0)
    return np.where(np.isnan(observed), np.nan, (1 + larger) / (1 + PERMUTATIONS))


def correct(p: Float[np.ndarray, " test"], method: str = "holm") -> Float[np.ndarray, " test"]:
    """P-values corrected for multiple tests.

    `"holm"` bounds the probability of any false discovery, and `"bh"` (Benjamini–Hochberg) bounds the expected share of
    false discoveries; `"none"` corrects nothing. NaN values stay NaN and do not count as tests.

    Source: [@holm1979], [@benjamini1995].
    """
    if method not in ("holm", "bh", "none"):
        raise UserError(f"correction must be holm, bh or none. Got {method}.")
    corrected, known = np.array(p, dtype=np.float64), ~np.isnan(p)
    if method == "none" or not known.any():
        return corrected
    given = corrected[known]
    order, num = np.argsort(given, kind="stable"), len(given)
    if method == "holm":
        adjusted = np.maximum.accumulate(given[order] * (num - np.arange(num)))
    else:
        adjusted = np.minimum.accumulate((given[order] * num / (1 + np.arange(num)))[::-1])[::-1]
    result = np.empty(num)
    result[order] = np.minimum(adjusted, 1.0)
    corrected[known] = result
    return corrected


def paired_bootstrap_p(replicates: Float[np.ndarray, "test draw"]) -> Float[np.ndarray, " test"]:
    """Two-sided p-value of differences from their bootstrap replicates: twice the smaller share on either side of 0.

    Source: [@koehn2004], whose test is one-sided.
    """
    draws = replicates.shape[1]
    below: Bool[np.ndarray, "..."] = replicates <= 0
    tail = np.minimum(below.sum(axis=1), (replicates >= 0).sum(axis=1))
    return np.minimum(2 * (1 + tail) / (1 + draws), 1.0)


SentenceFunction = Callable[[Model, Corpus], Float[np.ndarray, " sentence"]]
"""A user-defined metric: a number for each sentence of the corpus; their mean is the score."""

BatchLosses = Callable[[ScoredBatch], tuple[Tensor, Tensor]]
"""Summed losses of a batch's sentences for the intact model (B,), and for each variant (V, B); on the CPU."""

_BLEU_RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VariantScores:
    """Statistics of each variant per bootstrap block, and the function that turns their sums into a score."""

    metric: str
    sums_VKS: Float[np.ndarray, "variant block statistic"]
    score: Callable[[np.ndarray], np.ndarray]  # (…, S) → (…,)
    num_sentences: int
    signature: str = ""  # sacreBLEU's

    def at(self, places: Sequence[int]) -> "VariantScores":
        """The variants at these indices, in this order."""
        return replace(self, sums_VKS=self.sums_VKS[list(places)])

    def scores(self) -> Float[np.ndarray, "variant row"]:
        """Score of each variant, the full model first: the estimate, then its bootstrap replicates (V, 1 + R)."""
        return self._weighed(np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()]))

    def changes(self) -> Float[np.ndarray, "variant row"]:
        """Score of each variant minus the full model's: the estimate, then its bootstrap replicates (V − 1, 1 + R)."""
        scores_VR = self.scores()
        return scores_VR[1:] - scores_VR[:1]

    def _weighed(self, weights_RK: np.ndarray) -> np.ndarray:
        return self.score(np.einsum("rk,vks->vrs", weights_RK, self.sums_VKS))

    def p_values(self) -> Float[np.ndarray, " variant"]:
        """Two-sided p-values of the changes: random signs (`sign_flip_p`) for means, paired bootstrap for BLEU."""
        if self.metric == "bleu":
            scores_VR = self._weighed(replicate_weights(num=_BLEU_RESAMPLES))
            return paired_bootstrap_p(scores_VR[1:] - scores_VR[:1])
        return sign_flip_p(self.sums_VKS[1:, :, 0] - self.sums_VKS[:1, :, 0])


def loss_scores(
    scorer: SentenceScorer,
    rows: np.ndarray,
    variants: Sequence[HeadSet],
    mode: AblationMode = "zero",
    options: PassOptions | None = None,
) -> VariantScores:
    """Losses of the model and of each variant on the sentences `rows`, in nats per predicted token."""
    budget = (options or PassOptions()).tokens_per_batch
    engine = VariantLosses(scorer, mode, budget, rows)
    return summed_losses(
        scorer,
        rows,
        1 + len(variants),
        lambda batch: engine.losses(batch, variants),
        # An eighth of the budget: at least eight variants of a batch run together.
        budget=max(1, budget // 8),
        label=f"Ablating heads of {scorer.model.name}",
    )


def summed_losses(
    scorer: SentenceScorer, rows: np.ndarray, num: int, losses: BatchLosses, *, budget: int, label: str
) -> VariantScores:
    """Sums of `num` losses over the sentences `rows`, per bootstrap block; `budget` limits a batch's padded tokens."""
    sums_VKS, sentences = np.zeros((num, NUM_BLOCKS, 2)), 0
    with current_display().progress(label, len(rows), "sentences") as progress:
        for batch in scorer.batches(rows, budget):
            clean_B, losses_VB = losses(batch)
            blocks = batch.padded.blocks.numpy()
            together_BV = np.concatenate([clean_B[:, None].numpy(), losses_VB.T.numpy()], axis=1)
            np.add.at(sums_VKS[:, :, 0].T, blocks, together_BV)
            np.add.at(sums_VKS[:, :, 1].T, blocks, batch.counts.cpu().double().numpy()[:, None])
            sentences += batch.size
            progress.advance(batch.size)
    return VariantScores(metric="loss", sums_VKS=sums_VKS, score=_ratio, num_sentences=sentences)


def corpus_scores(
    model: Model,
    corpus: Corpus,
    variants: Sequence[HeadSet],
    metric: str | SentenceFunction,
    mode: AblationMode = "zero",
    *,
    beams: int = 5,
) -> VariantScores:
    """The score of each variant: BLEU (lower-cased, detokenised, beam search) or the mean of a user's function.

    Every variant runs in full, since the metric may call the model in any way.
    """
    blocks, sums, signature = block_of(corpus.content_ids), [], ""
    with current_display().progress(f"Ablating heads of {model.name}", 1 + len(variants), "variants") as progress:
        for heads in [frozenset(), *variants]:
            with ablate(model, sorted(heads), mode, reference=None if mode == "zero" else corpus):
                if callable(metric):
                    sums.append(_function_sums(metric, model, corpus, blocks))
                else:
                    found, signature = bleu_sums(model, corpus, beams)
                    sums.append(found)
            progress.advance(1)
    if not callable(metric):
        return bleu_variants(sums, len(corpus), signature)
    name = getattr(metric, "__name__", "metric")
    return VariantScores(metric=name, sums_VKS=np.stack(sums), score=_ratio, num_sentences=len(corpus))


def bleu_variants(sums: Sequence[np.ndarray], num_sentences: int, signature: str) -> VariantScores:
    """BLEU of each variant, computed from its statistics (`bleu_sums`); the unablated model comes first."""
    return VariantScores(
        metric="bleu", sums_VKS=np.stack(sums), score=_bleu, num_sentences=num_sentences, signature=signature
    )


def _ratio(sums: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[..., 0] / sums[..., 1]


def _bleu(sums: np.ndarray) -> np.ndarray:
    scores = [BleuStatistics.of(row).score for row in sums.reshape(-1, 10)]
    return np.array(scores).reshape(sums.shape[:-1])


def bleu_sums(model: Model, corpus: Corpus, beams: int) -> tuple[np.ndarray, str]:
    """Statistics of lower-cased BLEU for each bootstrap block (64, 10), and sacreBLEU's signature."""
    if "translation" not in corpus.columns:
        raise UserError(f"BLEU compares with translations, and {corpus.name} has none. Give a parallel corpus.")
    sentences = list(corpus)
    output = translate(model, [sentence.text for sentence in sentences], beams=beams)
    references = as_model_writes(model, [sentence.translation or "" for sentence in sentences])
    sums, signature = np.zeros((NUM_BLOCKS, 10)), ""
    for block, found in bleu_by_block(output, [[one] for one in references], block_of(corpus.content_ids)).items():
        sums[block] = found.counts
        signature = found.signature
    return sums, signature


def _function_sums(metric: SentenceFunction, model: Model, corpus: Corpus, blocks: np.ndarray) -> np.ndarray:
    values = np.asarray(metric(model, corpus), dtype=np.float64)
    if values.shape != (len(corpus),):
        raise UserError(
            f"A metric must give one number for each of the {len(corpus)} sentences. Got shape {values.shape}."
        )
    sums = np.zeros((NUM_BLOCKS, 2))
    np.add.at(sums, blocks, np.stack([values, np.ones(len(values))], axis=1))
    return sums
