"""The effect on the loss when a head is ablated, and when it is the only head left in its layer."""

# H head, R row: the estimate, then its replicates

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, PassOptions, Reader, measure
from infoflow.foundation import UserError, stream
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._ablation_scores import SentenceFunction, VariantScores, corpus_scores, correct, loss_scores
from ._head_measure import HEAD_KEYS, KIND, STACK, head_keys
from ._head_sets import HeadSet, all_heads, check_mode
from ._scored import SentenceScorer, no_loss

HEAD_ABLATION = TableSchema(
    name="head_ablation",
    description="How the model's score changes without a head, or with only that head in its layer. Both scores are on "
    "the same sentences, so their differences are paired.",
    columns=(
        *HEAD_KEYS,
        Column(
            "removed",
            "string",
            "",
            "head: only this head is ablated; others: all other heads of its layer and kind are ablated",
        ),
        Column("mode", "string", "", "zero, mean or resample; see heads.ablate"),
        Column(
            "metric",
            "string",
            "",
            "loss, bleu (sacreBLEU, lower-cased; tokenizer 13a, or zh or char for scripts without spaces), "
            "or the name of a user's function",
        ),
        *estimate_columns(
            "nats per token (loss), percent (bleu)",
            "score after ablation minus score before",
            "removed=head: mean change over all heads of that stack and kind; removed=others: mean change over all "
            "choices of the head that is kept in the layer (as if a random head were kept)",
            "sentences",
        ),
        Column(
            "p",
            "float64",
            "",
            "two-sided p-value of no change: random signs of the differences per sentence block; paired "
            "bootstrap for bleu",
        ),
        Column("p_corrected", "float64", "", "p, corrected for the number of rows with this value of removed"),
    ),
)

_LOSSES: WeakKeyDictionary[Reader, dict[Any, VariantScores]] = WeakKeyDictionary()


class Ablation(Intervention):
    """The change in loss per predicted token when one head is ablated, with its interval and corrected p-value.

    A positive change means that the model is better with the head. Layers below an ablated head run only once, and many
    ablations run together in batches.

    Args:
        mode: `"zero"`, `"mean"` (over the same sentences) or `"resample"`; see `ablate`.
        others: Also test every head as the only one left in its layer and kind.
        correction: Correction for testing many heads: `"holm"`, `"bh"` or `"none"`.
        sentences: Number of sentences, chosen by hash.

    Source: [@michel2019].
    """

    table: ClassVar[TableSchema] = HEAD_ABLATION
    by_token = True

    def __init__(
        self, mode: str = "zero", *, others: bool = True, correction: str = "holm", sentences: int | None = 64
    ) -> None:
        check_mode(mode)
        correct(np.ones(1), correction)
        self.mode, self.others, self.correction, self.sentences = mode, others, correction, sentences

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        frames = []
        for removed in ["head", "others"] if self.others else ["head"]:
            scores = head_losses(reader, options, self.mode, self.sentences, removed)
            frames.append(_frame(reader.model, scores, self.mode, removed, self.correction))
        return pd.concat(frames, ignore_index=True)


def head_losses(
    reader: Reader, options: PassOptions, mode: str, sentences: int | None, removed: str = "head"
) -> VariantScores:
    """Losses with each head ablated, or kept as the only one; computed once for all measures on the same corpus."""
    key = (mode, sentences, removed, options)
    held = _LOSSES.setdefault(reader, {})
    if key not in held:
        scorer = SentenceScorer(reader)
        rows = scorer.choose(sentences, "head-ablation")
        held[key] = loss_scores(scorer, rows, variants_of(reader.model, removed), check_mode(mode), options)
    return held[key]


def variants_of(model: Model, removed: str) -> list[HeadSet]:
    """The set of heads to ablate for each head of the model, in the order of `all_heads`."""
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
        corpus: Text to evaluate on.
        metric: `"loss"` (fast), `"bleu"`, or a function of (model, corpus) that returns a number per sentence.
        mode: `"zero"`, `"mean"` or `"resample"`; means and donated outputs come from the corpus.
        others: Also test every head as the only one left in its layer and kind.
        correction: `"holm"`, `"bh"` or `"none"`.
        sentences: Number of sentences, chosen by hash; default: all. Only for `"loss"`; for other metrics pass a
            smaller corpus.
        beams: Number of beams of the beam search for BLEU.
        options: How the corpus is run; only for `"loss"`.

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
    return HEAD_ABLATION.conform(pd.concat(frames, ignore_index=True))


def _frame(model: Model, scores: VariantScores, mode: str, removed: str, correction: str) -> pd.DataFrame:
    heads, changes_VR, p = all_heads(model.anatomy), scores.changes(), scores.p_values()
    group = (lambda head: head[:2]) if removed == "head" else (lambda head: head[:3])
    alike: dict[tuple, list[float]] = {}
    for head, row in zip(heads, changes_VR, strict=True):
        alike.setdefault(group(head), []).append(float(row[0]))
    rows = [
        {
            **head_keys(*head),
            "removed": removed,
            "mode": mode,
            "metric": scores.metric,
            **estimate(float(row[0]), row[1:], float(np.mean(alike[group(head)])), scores.num_sentences),
            "p": p_one,
            "p_corrected": p_both,
        }
        for head, row, p_one, p_both in zip(heads, changes_VR, p, correct(p, correction), strict=True)
    ]
    return pd.DataFrame(rows, columns=HEAD_ABLATION.column_names)


ABLATION_TRANSFER = TableSchema(
    name="ablation_transfer",
    version=2,
    description="Correlation over a model's heads between the loss changes that ablating each head causes on "
    "two corpora.",
    made_by="a plan makes it if transfer_name in its [corpus] names a corpus of another domain",
    columns=(
        Column("kind", "string", "", "the heads that are compared: all, or those of one kind (encoder-self, …)"),
        *estimate_columns(
            "Pearson's r",
            "correlation over heads",
            "95 % quantile of the correlation with the heads of the second corpus shuffled",
            "heads",
        ),
    ),
)
_SHUFFLES = 1000


def ablation_transfer(
    model: Model, first: Corpus, second: Corpus, *, sentences: int | None = None, options: PassOptions | None = None
) -> pd.DataFrame:
    """Pearson's r between the effects of single ablations on two corpora, for all heads and for each kind.

    Intervals resample the sentences of both corpora independently.

    Source: [@michel2019].
    """
    if first.digest == second.digest:
        raise UserError("ablation_transfer compares two corpora, such as two domains. Got the same corpus twice.")
    tables = [ablation(model, corpus, sentences=sentences, options=options) for corpus in (first, second)]
    changes = [np.array([[v, *r] for v, r in zip(t["value"], t["replicates"], strict=True)]).T for t in tables]
    # Replicates in the same order would have the same weights and pair unrelated sentences.
    changes[1] = np.concatenate([changes[1][:1], changes[1][:0:-1]])
    names = (tables[0][STACK] + "-" + tables[0][KIND]).to_numpy()
    kinds = ["all", *dict.fromkeys(names)] if len(set(names)) > 1 else ["all"]
    rows = []
    for kind in kinds:
        x_RH, y_RH = (part[:, (names == kind) | (kind == "all")] for part in changes)
        r = _correlation(x_RH, y_RH)
        order = stream("ablation-transfer", kind).random((_SHUFFLES, x_RH.shape[1])).argsort(axis=1)
        shuffled = _correlation(np.broadcast_to(x_RH[:1], order.shape), y_RH[0][order])
        chance, num = float(np.quantile(shuffled, 0.95)), x_RH.shape[1]
        rows.append({"kind": kind, **estimate(r[0], r[1:], chance, num, scale="correlation")})
    return ABLATION_TRANSFER.conform(pd.DataFrame(rows))


def _correlation(x_RH: Float[np.ndarray, "row head"], y_RH: Float[np.ndarray, "row head"]) -> Float[np.ndarray, " row"]:
    x, y = (part - part.mean(axis=1, keepdims=True) for part in (x_RH, y_RH))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
