"""What the loss of one head does, for every head; and what is left when all others of its layer go."""

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, PassOptions, Reader, measure
from infoflow.foundation import UserError
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._ablation_scores import SentenceFunction, VariantScores, corpus_scores, loss_scores
from ._head_measure import HEAD_KEYS
from ._head_sets import Head, HeadSet, all_heads
from ._replacement import check_mode
from ._scored import SentenceScorer, no_loss
from ._significance import correct

_SCHEMA = TableSchema(
    name="head_ablation",
    version=1,
    description="how the model's score changes without a head, or with no other head in its layer; same sentences with "
    "and without, so differences are paired",
    columns=(
        *HEAD_KEYS,
        Column(
            name="removed",
            dtype="string",
            unit="",
            description="head: this head alone is ablated; others: all other heads of its layer and kind are",
        ),
        Column(name="mode", dtype="string", unit="", description="zero, mean or resample; see heads.ablate"),
        Column(name="metric", dtype="string", unit="", description="loss, bleu, or the name of a user's function"),
        *estimate_columns(
            "nats per token (loss), percent (bleu)",
            "score without less score with",
            "removed=head: mean change over all heads of that stack and kind; removed=others: mean over all heads of "
            "the layer as the one that stays (a random head kept)",
            "sentences",
        ),
        Column(
            name="p",
            dtype="float64",
            unit="",
            description="two-sided p-value of no change: random signs of the differences per sentence block; paired "
            "bootstrap for bleu",
        ),
        Column(
            name="p_corrected",
            dtype="float64",
            unit="",
            description="the same corrected for the number of rows with this value of removed",
        ),
    ),
)

_LOSSES: WeakKeyDictionary[Reader, dict[Any, VariantScores]] = WeakKeyDictionary()


class Ablation(Intervention):
    """Every head ablated alone: the change of the loss per predicted token, with interval and corrected p-value.

    A positive change says that the model was better with the head. Layers below an ablated head run once, and ablations
    run together in batches.

    Args:
        mode: `"zero"`, `"mean"` (over the same sentences) or `"resample"`; see `ablate`.
        others: Also every head as the only one left in its layer and kind.
        correction: For the number of heads: `"holm"`, `"bh"` or `"none"`.
        sentences: Chosen by hash.

    Source: [@michel2019].
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def __init__(
        self, mode: str = "zero", *, others: bool = True, correction: str = "holm", sentences: int | None = 64
    ) -> None:
        check_mode(mode)
        correct(np.ones(1), correction)
        self.mode, self.others, self.correction, self.sentences = mode, others, correction, sentences

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        kinds = ["head", "others"] if self.others else ["head"]
        frames = []
        for removed in kinds:
            scores = head_losses(reader, options, self.mode, self.sentences, removed)
            frames.append(_frame(reader.model, scores, self.mode, removed, self.correction))
        return pd.concat(frames, ignore_index=True)


def head_losses(
    reader: Reader, options: PassOptions, mode: str, sentences: int | None, removed: str = "head"
) -> VariantScores:
    """Losses with each head ablated alone, or alone left; computed once for all measures that read the same corpus."""
    key = (mode, sentences, removed, options)
    held = _LOSSES.setdefault(reader, {})
    if key not in held:
        scorer = SentenceScorer(reader)
        rows = scorer.choose(sentences, "head-ablation")
        held[key] = loss_scores(scorer, rows, variants_of(reader.model, removed), check_mode(mode), options)
    return held[key]


def variants_of(model: Model, removed: str) -> list[HeadSet]:
    """What is ablated for each head of the model, in the order of `all_heads`."""
    heads = all_heads(model.anatomy)
    if removed == "head":
        return [frozenset([head]) for head in heads]
    return [frozenset(other for other in heads if other[:3] == head[:3] and other != head) for head in heads]


def ablation(
    model: Model,
    corpus: Corpus,
    *,
    metric: str | SentenceFunction = "loss",
    mode: str = "zero",
    others: bool = False,
    correction: str = "holm",
    sentences: int | None = None,
    beams: int = 5,
    options: PassOptions | None = None,
) -> pd.DataFrame:
    """How a model's score on a corpus changes without each of its heads.

    Args:
        model: A loaded model.
        corpus: What it reads.
        metric: `"loss"` (fast), `"bleu"`, or a function of (model, corpus) that gives a number per sentence.
        mode: `"zero"`, `"mean"` or `"resample"`; means and other outputs come from the corpus.
        others: Also every head as the only one left in its layer and kind.
        correction: `"holm"`, `"bh"` or `"none"`.
        sentences: Chosen by hash; all by default. For `"loss"` only: select sentences of the corpus yourself otherwise.
        beams: Of the search behind BLEU.
        options: How the corpus is run (`"loss"`).

    Returns:
        One row per head, see the table `head_ablation`.

    Raises:
        UserError: The metric is unknown or does not fit the model or the corpus.
    """
    if metric == "loss":
        chosen = Ablation(mode, others=others, correction=correction, sentences=sentences)
        return measure(model, corpus, [chosen], options)[chosen.name]
    if metric != "bleu" and not callable(metric):
        raise UserError(f"metric must be loss, bleu or a function. Got {metric}.")
    frames = []
    for removed in ["head", "others"] if others else ["head"]:
        scores = corpus_scores(model, corpus, variants_of(model, removed), metric, check_mode(mode), beams=beams)
        frames.append(_frame(model, scores, mode, removed, correction))
    return _SCHEMA.conform(pd.concat(frames, ignore_index=True))


def _frame(model: Model, scores: VariantScores, mode: str, removed: str, correction: str) -> pd.DataFrame:
    heads, changes_VR, p = all_heads(model.anatomy), scores.changes(), scores.p_values()
    group = (lambda head: head[:2]) if removed == "head" else (lambda head: head[:3])
    alike: dict[tuple, list[float]] = {}
    for head, row in zip(heads, changes_VR, strict=True):
        alike.setdefault(group(head), []).append(float(row[0]))
    rows = [
        {
            **_keys(head),
            "removed": removed,
            "mode": mode,
            "metric": scores.metric,
            **estimate(float(row[0]), row[1:], float(np.mean(alike[group(head)])), scores.num_sentences),
            "p": p_one,
            "p_corrected": p_both,
        }
        for head, row, p_one, p_both in zip(heads, changes_VR, p, correct(p, correction), strict=True)
    ]
    return pd.DataFrame(rows, columns=_SCHEMA.column_names)


def _keys(head: Head) -> dict[str, Any]:
    return dict(zip(("stack", "kind", "layer", "head"), head, strict=True))
