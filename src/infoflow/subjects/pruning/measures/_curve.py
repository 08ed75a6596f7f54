"""Quality against the number of heads kept, in the same form for every selection method."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from infoflow.architectures import ALL_HEADS, KINDS
from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, Reader
from infoflow.foundation import Scale, UserError
from infoflow.heads import (
    Head,
    HeadSet,
    SentenceFunction,
    SentenceScorer,
    ablate,
    all_heads,
    corpus_scores,
    loss_scores,
)
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns

_SCALES: dict[str, Scale] = {"bleu": "percent", "loss": "positive"}

PRUNING = TableSchema(
    name="pruning",
    version=3,
    description="Quality of a model by the number of heads left and the method that chose them.",
    made_by="a plan that says [pruning] on = true makes it",
    columns=(
        Column(
            name="method",
            dtype="string",
            unit="",
            description="hard-concrete (learned gates), subset (exactly k), straight-through (exactly k at every "
            "update), importance, iterative, confidence, relevance or random; scratch: trained from the start with the "
            "heads of the hard-concrete point of the same place; recovered: that point, trained on without gates; "
            "recovered-random: as many random heads, trained on; recovered-all: all heads, trained on; unpruned: the "
            "model before, at point -1",
        ),
        Column(
            name="scope",
            dtype="string",
            unit="",
            description="heads that could be removed: all, those of one kind (encoder-self, decoder-self, "
            "decoder-cross) "
            "or of several (with commas between); empty for unpruned and recovered-all",
        ),
        Column(
            name="draw", dtype="int64", unit="", description="seed of gates or training, or number of the random order"
        ),
        Column(name="point", dtype="int64", unit="", description="place in the sweep, from 0"),
        Column(
            name="setting",
            dtype="float64",
            unit="",
            description="weight of the penalty, or heads to keep of those that may go",
        ),
        Column(name="kept", dtype="int64", unit="heads", description="heads of the model that are left, of all kinds"),
        Column(name="total", dtype="int64", unit="heads", description="heads of the unpruned model"),
        *(
            Column(name=f"kept_{kind.replace('-', '_')}", dtype="int64", unit="heads", description=f"{kind} heads left")
            for kind in KINDS
        ),
        Column(
            name="undecided",
            dtype="int64",
            unit="gates",
            description="learned gates that are still neither 0 nor 1 (0 for all other methods)",
        ),
        Column(
            name="metric",
            dtype="string",
            unit="",
            description="loss, bleu (sacreBLEU of detokenised beam search: lower-cased, one reference, tokenizer in "
            "`signature`), or the name of a user's function",
        ),
        *estimate_columns(
            "nats per token (loss), percent (bleu)",
            "score of the pruned model",
            "score of the model before any head went",
            "sentences",
        ),
        Column(name="signature", dtype="string", unit="", description="sacreBLEU's signature; empty for other metrics"),
    ),
)

PRUNED_HEADS = TableSchema(
    name="pruned_heads",
    version=2,
    description="Heads left at each step of a pruning sweep.",
    made_by="a plan that says [pruning] on = true makes it",
    columns=(
        Column(name="method", dtype="string", unit="", description="how heads were chosen, as in the table pruning"),
        Column(name="scope", dtype="string", unit="", description="heads that could go, as in the table pruning"),
        Column(name="draw", dtype="int64", unit="", description="as in the table pruning"),
        Column(name="point", dtype="int64", unit="", description="as in the table pruning"),
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="kind", dtype="string", unit="", description="self or cross"),
        Column(name="layer", dtype="int64", unit="", description="block, from 0"),
        Column(name="head", dtype="int64", unit="", description="head, from 0"),
        Column(name="alive", dtype="bool", unit="", description="whether the head is left (learned gates: not 0)"),
        Column(
            name="gate",
            dtype="float64",
            unit="",
            description="what its output is multiplied by in evaluation; 0 or 1 unless learned",
        ),
        Column(
            name="log_alpha",
            dtype="float64",
            unit="",
            description="the learned gate's log α, or the logit of an exact-k choice; NaN for all other methods",
        ),
    ),
)


def quality(
    model: Model,
    corpus: Corpus,
    removed: HeadSet,
    metric: str | SentenceFunction = "loss",
    *,
    beams: int = 5,
    options: PassOptions | None = None,
) -> dict[str, Any]:
    """Score of a model without some heads: metric, sacreBLEU's signature, estimate and replicates (1 + R), sentences.

    Args:
        model: The model, with learned gates attached or not.
        corpus: Held-out sentences.
        removed: Heads to ablate.
        metric: `"loss"` (nats per predicted token), `"bleu"`, or a function of (model, corpus) that returns a number
            per sentence, such as a classifier's hits.

    Raises:
        UserError: The metric is unknown or not applicable.
    """
    if metric != "loss" and metric != "bleu" and not callable(metric):
        raise UserError(f"metric must be loss, bleu or a function. Got {metric}.")
    with ablate(model, sorted(removed)):
        if metric == "loss":
            options = options or PassOptions()
            parallel = model.task == "seq2seq" and "translation" in corpus.columns
            reader = Reader(
                model,
                corpus,
                max_length=options.max_length,
                seed=options.seed,
                decoder=parallel,
                corruption=options.corruption,
            )
            scorer = SentenceScorer(reader)
            scores = loss_scores(scorer, scorer.choose(None, ""), [], "zero", options)
        else:
            scores = corpus_scores(model, corpus, [], metric, beams=beams)
    facts = {"metric": scores.metric, "signature": scores.signature}
    return {**facts, "scores": scores.scores()[0], "count": scores.num_sentences}


def point_tables(
    model: Model,
    corpus: Corpus,
    removed: HeadSet,
    keys: Mapping[str, Any],
    full: Mapping[str, float],
    *,
    learned: Mapping[Head, tuple[float, float]] | None = None,
    beams: int = 5,
    options: PassOptions | None = None,
) -> dict[str, pd.DataFrame]:
    """The rows of one point of a sweep in the tables `pruning` and `pruned_heads`.

    Args:
        model: The model, with learned gates attached or not.
        corpus: Held-out sentences.
        removed: Heads to ablate.
        keys: `method`, `scope`, `draw`, `point`, `setting`, and `undecided` for learned gates.
        full: Metrics ("loss", "bleu") and the unpruned model's score by each.
        learned: Gate and log α of gated heads.
        beams: Beams of the search for BLEU.
        options: How the corpus is run.
    """
    scores = [quality(model, corpus, removed, metric, beams=beams, options=options) for metric in full]
    rows = [curve_row(model, keys, removed, found, full[found["metric"]]) for found in scores]
    place = {name: keys[name] for name in ("method", "scope", "draw", "point")}
    return frames(rows, head_rows(model, place, removed, learned))


def scope_of(kinds: Sequence[str] | None) -> str:
    """The tables' name for the heads that may be removed, from the requested kinds of attention."""
    return ALL_HEADS if kinds is None else ", ".join(kinds)


def curve_row(model: Model, keys: Mapping[str, Any], removed: HeadSet, found: Mapping[str, Any], full: float) -> dict:
    """One row of the table `pruning`."""
    heads = all_heads(model.anatomy)
    left = [f"{head[0]}-{head[1]}" for head in heads if head not in removed]
    scores = np.asarray(found["scores"])
    return {
        "undecided": 0,
        **keys,
        "kept": len(left),
        "total": len(heads),
        **{f"kept_{kind.replace('-', '_')}": left.count(kind) for kind in KINDS},
        "metric": found["metric"],
        **estimate(float(scores[0]), scores[1:], full, found["count"], scale=_SCALES.get(found["metric"], "any")),
        "signature": found["signature"],
    }


def head_rows(model: Model, keys: Mapping[str, Any], removed: HeadSet, learned: Mapping | None = None) -> list[dict]:
    """Rows of the table `pruned_heads`; `learned`: head → (gate, log α)."""
    rows = []
    for head in all_heads(model.anatomy):
        alive = head not in removed
        gate, log_alpha = (learned or {}).get(head, (float(alive), float("nan")))
        names = dict(zip(("stack", "kind", "layer", "head"), head, strict=True))
        rows.append({**keys, **names, "alive": alive, "gate": gate if alive else 0.0, "log_alpha": log_alpha})
    return rows


def frames(rows: list[dict], heads: list[dict]) -> dict[str, pd.DataFrame]:
    """Both tables."""
    return {
        PRUNING.name: PRUNING.conform(pd.DataFrame(rows, columns=PRUNING.column_names)),
        PRUNED_HEADS.name: PRUNED_HEADS.conform(pd.DataFrame(heads, columns=PRUNED_HEADS.column_names)),
    }
