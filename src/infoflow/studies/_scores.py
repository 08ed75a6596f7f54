"""Has a model learned its task? Loss, BLEU and ROUGE on held-out text, each beside a baseline that ignores context."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from infoflow.corpus import Corpus, Encoded
from infoflow.foundation import NUM_BLOCKS, block_of, hash64_array, replicate_weights
from infoflow.models import BleuStatistics, Model, bleu_statistics, rouge, translate, write_texts
from infoflow.objectives import UNSUPERVISED, AbstractObjective, Answers, accuracy, area_under_curve
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate
from infoflow.training import PairRows, TokenRows, TrainingData

TASK_SCORES = TableSchema(
    name="task_scores",
    version=2,
    description="how well each model does what it was trained for, on sentences it never saw",
    columns=(
        Column(name="split", dtype="string", unit="", description="part of the corpus: validation or test"),
        Column(
            name="metric",
            dtype="string",
            unit="",
            description="loss (nats per predicted token; of several terms the weighted sum, and `loss of …` for each), "
            "perplexity (exp of the loss), bleu (sacreBLEU, percent), rougeL (of what the decoder writes, 0 to 1); "
            "`… accuracy` (share of pairs judged rightly), `… AUC` (probability that a replaced token is told from "
            "another, a true pair of words from a drawn one)",
        ),
        *estimate_columns(
            "nats, 1 or percent",
            "the score",
            "the same score without context: unigram frequencies of the training text (loss, perplexity), "
            "what the encoder reads copied (bleu, rougeL), the more frequent answer (accuracy), a half (AUC)",
        ),
        Column(name="signature", dtype="string", unit="", description="sacreBLEU's signature; empty for losses"),
    ),
)


def task_scores(
    model: Model,
    objective: AbstractObjective,
    data: TrainingData,
    content_ids: np.ndarray,
    training: TrainingData,
    split: str,
) -> pd.DataFrame:
    """Loss and perplexity of `model` on `data`, and answers to what else its objective asks; noise is frozen per
    sentence, intervals are over sentence blocks.

    `content_ids` are those of the rows of `data` (`content_ids_of`): measures of the same corpus have the same blocks.
    """
    blocks = block_of(content_ids)
    unigram = unigram_losses(objective, training)
    terms = list(objective.term_weights)
    sums, baseline, counts = (np.zeros((len(terms), NUM_BLOCKS)) for _ in range(3))
    answers = _AnswersByBlock()
    with torch.inference_mode():
        for rows in rows_by_block(blocks, data.source.lengths):
            batch = data.batch(objective.for_evaluation(), rows, ("evaluation-noise", 0), 0).to(model.device)
            block = blocks[rows[0]]
            losses, guesses = objective.loss(model.module, batch, batch.noise), objective.guesses(batch, unigram)
            answers.add(objective.answers(model.module, batch, batch.noise), int(block))
            for index, term in enumerate(terms):
                sums[index, block] += float(losses[term].total)
                baseline[index, block] += guesses[term]
                counts[index, block] += losses[term].count
    return pd.DataFrame([*_loss_rows(objective, split, sums, baseline, counts), *answers.rows(split)])


def content_ids_of(rows: TokenRows, corpus: Corpus) -> np.ndarray:
    """`Corpus.content_ids` of each row: of a window its first sentence's, of a pair that of its first segment's."""
    ids = corpus.content_ids
    if isinstance(rows, Encoded):
        return ids
    sentences = rows.pairs.sentence_ids if isinstance(rows, PairRows) else rows.sentence_ids
    order = np.argsort(corpus.ids, kind="stable")
    return ids[order[np.searchsorted(corpus.ids[order], sentences)]]


def _loss_rows(
    objective: AbstractObjective, split: str, sums: np.ndarray, baseline: np.ndarray, counts: np.ndarray
) -> list[dict]:
    """The loss that is minimised, of several terms each, of one its perplexity; arrays are (term, block)."""
    weights, terms = replicate_weights(), list(objective.term_weights)
    replicates = [(weights @ own) / (weights @ items) for own, items in zip(sums, counts, strict=True)]
    means, bases = sums.sum(axis=1) / counts.sum(axis=1), baseline.sum(axis=1) / counts.sum(axis=1)
    items = [int(count) for count in counts.sum(axis=1)]
    loss, losses, base = (
        sum(objective.term_weights[term] * part for term, part in zip(terms, parts, strict=True))
        for parts in (means, replicates, bases)
    )
    rows = [_row(split, "loss", loss, losses, base, sum(items))]
    if objective.family == "static":  # it predicts no token
        return rows
    if len(terms) == 1:
        return [*rows, _row(split, "perplexity", math.exp(loss), np.exp(losses), math.exp(base), sum(items))]
    parts = zip(terms, means, replicates, bases, items, strict=True)
    return [*rows, *(_row(split, f"loss of {term}", *part) for term, *part in parts)]


def bleu_scores(model: Model, corpus: Corpus, sentences: int, beams: int, split: str) -> pd.DataFrame:
    """BLEU of beam search on `sentences` different source sentences, against all their translations, lower-cased.

    Lower-cased because the tokenizers of a study may be; the signature says so.
    """
    sources, references, ids = _distinct(corpus, sentences)
    blocks = block_of(ids)
    scores = _block_statistics(translate(model, sources, beams=beams), references, blocks)
    copied = _block_statistics(sources, references, blocks)
    replicates = np.array([scores.weighted(weights).score for weights in replicate_weights()])
    row = _row(split, "bleu", scores.total.score, replicates, copied.total.score, len(sources))
    return pd.DataFrame([row | {"signature": scores.signature}])


def rouge_scores(
    model: Model,
    objective: AbstractObjective,
    data: TrainingData,
    content_ids: np.ndarray,
    sentences: int,
    beams: int,
    split: str,
) -> pd.DataFrame:
    """ROUGE-L of what the decoder writes by beam search after `sentences` rows of `data`, damaged as the loss damages
    them; the baseline is what the encoder reads, copied. For objectives that `can_write`; see `task_scores`.
    """
    rows = np.argsort(hash64_array(("rouge-sentences",), content_ids), kind="stable")[:sentences]
    batch = data.batch(objective.for_evaluation(), rows, ("evaluation-noise", 0), 0)
    read = [ids[real].tolist() for ids, real in zip(batch.input_ids, batch.real, strict=True)]
    wanted = [labels[labels != UNSUPERVISED].tolist() for labels in batch.labels]
    tokenizer = model.require_tokenizer()
    right, copied = (tokenizer.batch_decode(texts, skip_special_tokens=True) for texts in (wanted, read))
    longest = 2 * max(map(len, wanted), default=0) + 10
    said = write_texts(model, read, longest, beams=beams)
    found, copies = (rouge(texts, [[one] for one in right])["rougeL"] for texts in (said, copied))
    blocks = block_of(content_ids[rows])
    sums = np.bincount(blocks, weights=found, minlength=NUM_BLOCKS)
    counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(np.float64)
    row = {"split": split, "metric": "rougeL", **ratio_estimate(sums, counts, float(copies.mean()), scale="share")}
    return pd.DataFrame([row | {"signature": ""}])


def _row(split: str, metric: str, value: float, replicates: np.ndarray, baseline: float, count: int) -> dict:
    return {"split": split, "metric": metric, **estimate(value, replicates, baseline, count), "signature": ""}


def rows_by_block(blocks: np.ndarray, lengths: np.ndarray, sentences: int = 256) -> list[np.ndarray]:
    """Rows of one block at a time, by length, so that sums per block need no sums per sentence."""
    batches = []
    for block in np.unique(blocks):
        rows = np.flatnonzero(blocks == block)
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        batches += [rows[start : start + sentences] for start in range(0, len(rows), sentences)]
    return batches


def unigram_losses(objective: AbstractObjective, training: TrainingData) -> np.ndarray:
    """−log p of each token id, from the frequencies of what the objective predicts in training (add-one)."""
    vocabulary = training.vocabulary
    rows = training.source
    if objective.needs_translation:
        assert training.target is not None
        rows, vocabulary = training.target, training.target_vocabulary or vocabulary
    if objective.num_sentinels(1) or not isinstance(rows, Encoded):
        counts = _predicted(objective, training)
    else:
        counts = np.bincount(np.asarray(rows.flat_ids), minlength=vocabulary.size).astype(np.float64)
    counts[vocabulary.start] = 0  # read, never predicted
    if objective.layout not in ("decoder", "encoder-decoder", "bidirectional-pair"):
        counts[list(vocabulary.special)] = 0  # a masked LM is never asked for [SEP]
    return np.log(counts.sum() + len(counts)) - np.log(counts + 1)


def _predicted(objective: AbstractObjective, training: TrainingData, examples: int = 5000) -> np.ndarray:
    """How often each id is predicted, on training examples spread evenly over the corpus.

    Sentinels are in no text, and of windows and pairs a token is in several or in none.
    """
    rows = np.unique(np.linspace(0, len(training.source.lengths) - 1, examples).astype(int))
    labels = training.batch(objective, rows, ("unigram-noise",), 0).labels.numpy()
    return np.bincount(labels[labels != UNSUPERVISED], minlength=training.vocabulary.size).astype(np.float64)


class _AnswersByBlock:
    """Answers of a whole part of the corpus, with the block of the example that asks."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Answers, int]]] = {}

    def add(self, answers: dict[str, Answers], block: int) -> None:
        for name, own in answers.items():
            self._parts.setdefault(name, []).append((own, block))

    def rows(self, split: str) -> list[dict]:
        return [self._row(split, name, parts) for name, parts in self._parts.items()]

    def _row(self, split: str, name: str, parts: list[tuple[Answers, int]]) -> dict:
        scores = np.concatenate([own.scores for own, _ in parts])
        truth = np.concatenate([own.truth for own, _ in parts])
        block = np.repeat([block for _, block in parts], [len(own.scores) for own, _ in parts])
        value = accuracy if parts[0][0].kind == "accuracy" else area_under_curve
        weights = replicate_weights()[:, block].astype(np.float64)
        replicates = np.array([value(scores, truth, each) for each in weights])
        often = max(truth.mean(), 1 - truth.mean()) if value is accuracy else 0.5
        return _row(split, name, value(scores, truth, np.ones(len(truth))), replicates, float(often), len(truth))


def _distinct(corpus: Corpus, num: int) -> tuple[list[str], list[list[str]], np.ndarray]:
    """`num` different sources by the hash of their text, with all their translations."""
    translations: dict[str, list[str]] = {}
    lowest: dict[str, int] = {}
    for sentence, id in zip(corpus, corpus.content_ids.tolist(), strict=True):
        translations.setdefault(sentence.text, []).append(sentence.translation or "")
        lowest[sentence.text] = min(id, lowest.get(sentence.text, id))
    sources, ids = list(lowest), np.array(list(lowest.values()))
    chosen = np.argsort(hash64_array(("bleu-sentences",), ids))[:num]
    picked = [sources[index] for index in chosen]
    return picked, [translations[source] for source in picked], ids[chosen]


class _BlockStatistics:
    """BLEU's sufficient statistics per bootstrap block: they add up."""

    def __init__(self, blocks: list[BleuStatistics | None], signature: str) -> None:
        self._blocks = blocks
        self.signature = signature

    def weighted(self, weights: np.ndarray) -> BleuStatistics:
        return sum(
            (block * int(weight) for block, weight in zip(self._blocks, weights, strict=True) if block and weight),
            start=BleuStatistics.zero(),
        )

    @property
    def total(self) -> BleuStatistics:
        return self.weighted(np.ones(NUM_BLOCKS))


def _block_statistics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], blocks: np.ndarray
) -> _BlockStatistics:
    parts: list[BleuStatistics | None] = []
    signature = ""
    for block in range(NUM_BLOCKS):
        rows = np.flatnonzero(blocks == block)
        if len(rows) == 0:
            parts.append(None)
            continue
        part = bleu_statistics([hypotheses[row] for row in rows], [references[row] for row in rows], lowercase=True)
        parts.append(part)
        signature = part.signature
    return _BlockStatistics(parts, signature)
