"""Scores that show whether a model has learned its task: held-out loss, BLEU and ROUGE, each with a baseline."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch

from infoflow import foundation, models
from infoflow.corpus import Corpus, Encoded
from infoflow.objectives import UNSUPERVISED, AbstractObjective, Answers, accuracy, area_under_curve
from infoflow.results import estimate, ratio_estimate
from infoflow.training import PairRows, TokenRows, TrainingData

_GUESSES = 20  # number of sentences tried as the single answer to all sources


def task_scores(
    model: models.Model,
    objective: AbstractObjective,
    data: TrainingData,
    content_ids: np.ndarray,
    training: TrainingData,
    split: str,
) -> pd.DataFrame:
    """Loss and perplexity of `model` on `data`, and the further scores of its objective.

    If the objective has several tasks, the loss of each task on all rows is added. The noise of a sentence is the same
    for every model, and intervals are over blocks of sentences.

    `content_ids` are those of the rows of `data` (`content_ids_of`), so that measures of the same corpus share blocks.
    """
    blocks = foundation.block_of(content_ids)
    unigram = unigram_losses(objective, training)
    terms = list(objective.term_weights)
    sums, baseline, counts = (np.zeros((len(terms), foundation.NUM_BLOCKS)) for _ in range(3))
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
    whole = pd.DataFrame([*_loss_rows(objective, split, sums, baseline, counts), *answers.rows(split)])
    tasks = objective.parts if len(objective.parts) > 1 else {}
    apart = {task: task_scores(model, one, data, content_ids, training, split) for task, one in tasks.items()}
    losses = [one[one["metric"] == "loss"].assign(metric=f"loss of {task}") for task, one in apart.items()]
    return pd.concat([whole, *losses], ignore_index=True)


def content_ids_of(rows: TokenRows, corpus: Corpus) -> np.ndarray:
    """`Corpus.content_ids` of each row; a window uses its first sentence, and a pair its first segment."""
    ids = corpus.content_ids
    if isinstance(rows, Encoded):
        return ids
    sentences = rows.pairs.sentence_ids if isinstance(rows, PairRows) else rows.sentence_ids
    order = np.argsort(corpus.ids, kind="stable")
    return ids[order[np.searchsorted(corpus.ids[order], sentences)]]


def _loss_rows(
    objective: AbstractObjective, split: str, sums: np.ndarray, baseline: np.ndarray, counts: np.ndarray
) -> list[dict]:
    """The minimised loss, its terms if there are several, and the perplexity if not; arrays are (term, block)."""
    weights, terms = foundation.replicate_weights(), list(objective.term_weights)
    replicates = [(weights @ own) / (weights @ items) for own, items in zip(sums, counts, strict=True)]
    means, bases = sums.sum(axis=1) / counts.sum(axis=1), baseline.sum(axis=1) / counts.sum(axis=1)
    items = [int(count) for count in counts.sum(axis=1)]
    loss, losses, base = (
        sum(objective.term_weights[term] * part for term, part in zip(terms, parts, strict=True))
        for parts in (means, replicates, bases)
    )
    rows = [_row(split, "loss", loss, losses, base, sum(items))]
    if objective.family == "static":  # static vectors predict no token
        return rows
    if len(terms) == 1:
        return [*rows, _row(split, "perplexity", math.exp(loss), np.exp(losses), math.exp(base), sum(items))]
    parts = zip(terms, means, replicates, bases, items, strict=True)
    return [*rows, *(_row(split, f"loss of {term}", *part) for term, *part in parts)]


def bleu_scores(
    model: models.Model, corpus: Corpus, sentences: int, beams: int, split: str, prefix: str = ""
) -> pd.DataFrame:
    """BLEU of beam search on `sentences` distinct source sentences, against all their translations.

    The model reads `prefix` before each sentence. Text is lower-cased and in the form that the model's tokenizer
    writes; the signature names the BLEU tokenizer for the text's script.
    """
    sources, references, ids = _distinct(corpus, sentences)
    references = [models.as_model_writes(model, texts) for texts in references]
    written = models.translate(model, [prefix + source for source in sources], beams=beams)
    said = models.bleu_by_block(written, references, foundation.block_of(ids))
    replicates = np.array([_bleu(said, weights).score for weights in foundation.replicate_weights()])
    whole = _bleu(said, np.ones(foundation.NUM_BLOCKS))
    baseline = _bleu_of_guess(models.as_model_writes(model, sources), references)
    row = _row(split, "bleu", whole.score, replicates, baseline, len(sources), "percent")
    return pd.DataFrame([row | {"signature": whole.signature}])


def _bleu_of_guess(sources: list[str], references: list[list[str]]) -> float:
    """BLEU of copying the sources or, for text without spaces, of one sentence as the answer to all if that is higher.

    A sentence rarely shares four consecutive words with an unrelated reference, but often shares characters, so a
    decoder that ignores its source can exceed a copy in text without spaces.
    """
    tokenizer = models.bleu_tokenizer(text for right in references for text in right)
    often = [] if tokenizer == "13a" else [right[0] for right in references[:_GUESSES]]
    guesses = [sources, *([text] * len(references) for text in often)]
    return max(
        models.bleu_statistics(texts, references, lowercase=True, tokenizer=tokenizer).score for texts in guesses
    )


def _bleu(statistics: Mapping[int, models.BleuStatistics], weights: np.ndarray) -> models.BleuStatistics:
    """The summed BLEU statistics of one bootstrap draw of blocks, which occur `weights` times."""
    drawn = (one * int(weights[block]) for block, one in statistics.items() if weights[block])
    return sum(drawn, start=models.BleuStatistics.zero())


def rouge_scores(
    model: models.Model,
    objective: AbstractObjective,
    data: TrainingData,
    content_ids: np.ndarray,
    sentences: int,
    beams: int,
    split: str,
) -> pd.DataFrame:
    """ROUGE-L of what the decoder generates by beam search for `sentences` rows of `data`, corrupted as for the loss.

    The baseline copies the encoder's input. Only objectives that `can_write` have this score; see `task_scores`.
    """
    rows = np.argsort(foundation.hash64_array(("rouge-sentences",), content_ids), kind="stable")[:sentences]
    batch = data.batch(objective.for_evaluation(), rows, ("evaluation-noise", 0), 0)
    read = [ids[real].tolist() for ids, real in zip(batch.input_ids, batch.real, strict=True)]
    wanted = [labels[labels != UNSUPERVISED].tolist() for labels in batch.labels]
    tokenizer = model.require_tokenizer()
    right, copied = (tokenizer.batch_decode(texts, skip_special_tokens=True) for texts in (wanted, read))
    longest = 2 * max(map(len, wanted), default=0) + 10
    said = models.write_texts(model, read, longest, beams=beams)
    found, copies = (models.rouge(texts, [[one] for one in right])["rougeL"] for texts in (said, copied))
    blocks = foundation.block_of(content_ids[rows])
    sums = np.bincount(blocks, weights=found, minlength=foundation.NUM_BLOCKS)
    counts = np.bincount(blocks, minlength=foundation.NUM_BLOCKS).astype(np.float64)
    row = {"split": split, "metric": "rougeL", **ratio_estimate(sums, counts, float(copies.mean()), scale="share")}
    return pd.DataFrame([row | {"signature": ""}])


def _row(
    split: str,
    metric: str,
    value: float,
    replicates: np.ndarray,
    baseline: float,
    count: int,
    scale: foundation.Scale = "any",
    agreeing: float | None = None,
) -> dict:
    """One row of the table; `agreeing` is the effective number of observations if all agree, by default `count`."""
    agree = count if agreeing is None else agreeing
    ends = foundation.block_interval(value, foundation.block_effects(value, replicates), scale=scale, count=agree)
    return {
        "split": split,
        "metric": metric,
        **estimate(value, replicates, baseline, count, ends=ends),
        "signature": "",
    }


_TOGETHER = 256  # number of sentences of one block in a batch


def rows_by_block(blocks: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Batches of rows from a single block, sorted by length, so that sums per block need no sums per sentence."""
    batches = []
    for block in np.unique(blocks):
        rows = np.flatnonzero(blocks == block)
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        batches += [rows[start : start + _TOGETHER] for start in range(0, len(rows), _TOGETHER)]
    return batches


def unigram_losses(objective: AbstractObjective, training: TrainingData) -> np.ndarray:
    """−log p of each token id, from add-one frequencies of what the objective predicts in training."""
    vocabulary = training.vocabulary
    rows = training.source
    if objective.needs_translation:
        assert training.target is not None
        rows, vocabulary = training.target, training.target_vocabulary or vocabulary
    if objective.num_sentinels(1) or objective.parts or not isinstance(rows, Encoded):
        counts = _predicted(objective, training)
    else:
        counts = np.bincount(np.asarray(rows.flat_ids), minlength=vocabulary.size).astype(np.float64)
    counts[vocabulary.start] = 0  # read but never predicted
    if objective.layout not in ("decoder", "encoder-decoder", "bidirectional-pair"):
        counts[list(vocabulary.special)] = 0  # a masked LM never predicts [SEP]
    return np.log(counts.sum() + len(counts)) - np.log(counts + 1)


def _predicted(objective: AbstractObjective, training: TrainingData, examples: int = 5000) -> np.ndarray:
    """How often each id is predicted, counted on training examples spread evenly over the corpus.

    Counts of the text would not do, since sentinels occur in no text, and a token may be in several windows or pairs,
    or in none.
    """
    rows = np.unique(np.linspace(0, len(training.source.lengths) - 1, examples).astype(int))
    labels = training.batch(objective, rows, ("unigram-noise",), 0).labels.numpy()
    return np.bincount(labels[labels != UNSUPERVISED], minlength=training.vocabulary.size).astype(np.float64)


class _AnswersByBlock:
    """Collects the answers for a whole part of the corpus, with the block of each example."""

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
        weights = foundation.replicate_weights()[:, block].astype(np.float64)
        replicates = np.array([value(scores, truth, each) for each in weights])
        often = max(truth.mean(), 1 - truth.mean()) if value is accuracy else 0.5
        found, num, right = value(scores, truth, np.ones(len(truth))), len(truth), int(truth.sum())
        pairs = None if value is accuracy else 2 * right * (num - right) / num  # an area needs both classes
        return _row(split, name, found, replicates, float(often), num, "share", pairs)


def _distinct(corpus: Corpus, num: int) -> tuple[list[str], list[list[str]], np.ndarray]:
    """`num` distinct sources, chosen by the hash of their text, with all their translations."""
    translations: dict[str, list[str]] = {}
    lowest: dict[str, int] = {}
    for sentence, id in zip(corpus, corpus.content_ids.tolist(), strict=True):
        translations.setdefault(sentence.text, []).append(sentence.translation or "")
        lowest[sentence.text] = min(id, lowest.get(sentence.text, id))
    sources, ids = list(lowest), np.array(list(lowest.values()))
    chosen = np.argsort(foundation.hash64_array(("bleu-sentences",), ids))[:num]
    picked = [sources[index] for index in chosen]
    return picked, [translations[source] for source in picked], ids[chosen]
