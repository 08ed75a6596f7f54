"""Quality against the number of heads kept, and what a pruned model keeps and saves."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from infoflow.architectures import ALL_HEADS, KINDS
from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, PassOptions, Reader, measure
from infoflow.foundation import Scale, UserError
from infoflow.heads import (
    Head,
    HeadSet,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    SentenceFunction,
    SentenceScorer,
    ablate,
    all_heads,
    corpus_scores,
    head_roles,
    loss_scores,
)
from infoflow.models import Model, model_inputs
from infoflow.results import Column, TableSchema, estimate, estimate_columns

_SCALES: dict[str, Scale] = {"bleu": "percent", "loss": "positive"}

PRUNING = TableSchema(
    name="pruning",
    version=3,
    description="Quality of a model by the number of heads left and the method that chose them.",
    made_by="a plan with [pruning] on = true makes it",
    columns=(
        Column(
            "method",
            "string",
            "",
            "hard-concrete (learned gates), subset (exactly k), straight-through (exactly k at every update), "
            "importance, iterative, confidence, relevance or random; scratch: trained from the start with the heads "
            "of the hard-concrete point of the same number; recovered: the model of that point, trained further "
            "without gates; recovered-random: as many random heads, trained further; recovered-all: all heads, "
            "trained further; unpruned: the model before pruning, at point -1",
        ),
        Column(
            "scope",
            "string",
            "",
            "heads that could be removed: all, those of one kind (encoder-self, decoder-self, decoder-cross) or of "
            "several (with commas between); empty for unpruned and recovered-all",
        ),
        Column("draw", "int64", "", "seed of the gates or of the training, or number of the random order"),
        Column("point", "int64", "", "position in the sweep, from 0"),
        Column("setting", "float64", "", "weight of the penalty, or number of removable heads to keep"),
        Column("kept", "int64", "heads", "heads of the model that are left, of all kinds"),
        Column("total", "int64", "heads", "heads of the unpruned model"),
        *(Column(f"kept_{kind.replace('-', '_')}", "int64", "heads", f"{kind} heads left") for kind in KINDS),
        Column("undecided", "int64", "gates", "learned gates that are still neither 0 nor 1 (0 for all other methods)"),
        Column(
            "metric",
            "string",
            "",
            "loss, bleu (sacreBLEU of detokenised beam search: lower-cased, one reference, tokenizer in "
            "`signature`), or the name of a user's function",
        ),
        *estimate_columns(
            "nats per token (loss), percent (bleu)",
            "score of the pruned model",
            "score of the model before any head was removed",
            "sentences",
        ),
        Column("signature", "string", "", "sacreBLEU's signature; empty for other metrics"),
    ),
)

PRUNED_HEADS = TableSchema(
    name="pruned_heads",
    version=2,
    description="Heads left at each step of a pruning sweep.",
    made_by="a plan with [pruning] on = true makes it",
    columns=(
        Column("method", "string", "", "how heads were chosen, as in the table pruning"),
        Column("scope", "string", "", "heads that could be removed, as in the table pruning"),
        Column("draw", "int64", "", "as in the table pruning"),
        Column("point", "int64", "", "as in the table pruning"),
        Column("stack", "string", "", "encoder or decoder"),
        Column("kind", "string", "", "self or cross"),
        Column("layer", "int64", "", "block, from 0"),
        Column("head", "int64", "", "head, from 0"),
        Column("alive", "bool", "", "whether the head is left (learned gates: not 0)"),
        Column("gate", "float64", "", "factor on the head's output in evaluation; 0 or 1 unless learned"),
        Column(
            "log_alpha",
            "float64",
            "",
            "the learned gate's log α, or the logit of an exact-k choice; NaN for all other methods",
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
    """Score a model without some heads; return a dict with the score, its replicates and how it was computed.

    Args:
        model: The model, with or without learned gates attached.
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
        model: The model, with or without learned gates attached.
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
    """The value of the column `scope` for the requested kinds of attention."""
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
    """Turn rows into the tables `pruning` and `pruned_heads`."""
    return {
        PRUNING.name: PRUNING.conform(pd.DataFrame(rows, columns=PRUNING.column_names)),
        PRUNED_HEADS.name: PRUNED_HEADS.conform(pd.DataFrame(heads, columns=PRUNED_HEADS.column_names)),
    }


# Which roles of heads remain at each point of a pruning sweep.


_HEAD = ["stack", "kind", "layer", "head"]
_NAMES = {"value": "score", "holds": "present"}

PRUNED_ROLES = TableSchema(
    name="pruned_roles",
    version=2,
    description="Roles of heads, measured again at each step of a pruning sweep with the same thresholds on the same "
    "sentences. A removed head still attends, so it has scores, but its output is not used.",
    made_by="a plan with [pruning] on = true makes it",
    columns=(
        Column("method", "string", "", "how heads were chosen, as in the table pruning"),
        Column("scope", "string", "", "heads that could be removed, as in the table pruning"),
        Column("draw", "int64", "", "as in the table pruning"),
        Column("point", "int64", "", "as in the table pruning; -1 is the converged model before any head was removed"),
        Column("stack", "string", "", "encoder or decoder"),
        Column("kind", "string", "", "self or cross"),
        Column("layer", "int64", "", "block, from 0"),
        Column("head", "int64", "", "head, from 0"),
        Column("role", "string", "", "positional, syntactic or rarest token"),
        Column("score", "float64", "share", "the score that defines the role"),
        Column("baseline", "float64", "share", "control of the score, see the table of that score"),
        Column("low", "float64", "share", "lower end of the score's 95% interval"),
        Column("high", "float64", "share", "upper end of the score's 95% interval"),
        Column(
            "present",
            "bool",
            "",
            "whether the head has the role at this point: chosen, and above the limit on the other half of "
            "the sentences, see `head_roles`",
        ),
        Column("chosen", "bool", "", "whether the score reaches the limit on the first half"),
        Column("alive", "bool", "", "whether the head is left at this point"),
    ),
)


def role_measures() -> list[AbstractMeasure]:
    """The measures of positional, syntactic (if the corpus has trees) and rare-token scores."""
    return [PositionalScores(offsets=(-2, -1, 1, 2)), RelationScores(), RareTokenScores()]


def roles_left(
    model: Model,
    corpus: Corpus,
    removed: HeadSet,
    keys: Mapping[str, Any],
    *,
    options: PassOptions | None = None,
    ranks_from: Corpus | None = None,
) -> pd.DataFrame:
    """The table `pruned_roles` for a model without some of its heads.

    Args:
        model: The model, with or without learned gates attached.
        corpus: Sentences for measuring roles; syntactic ones need trees.
        removed: Heads to ablate.
        keys: `method`, `scope`, `draw` and `point`.
        options: How the corpus is run.
        ranks_from: Source of token frequencies, see `measure`.
    """
    with ablate(model, sorted(removed)):
        tables = measure(model, corpus, role_measures(), options, ranks_from)
    roles = head_roles(tables).rename(columns=_NAMES)
    heads = roles[_HEAD].itertuples(index=False, name=None)
    alive = [(str(stack), str(kind), int(layer), int(head)) not in removed for stack, kind, layer, head in heads]
    return PRUNED_ROLES.conform(roles.assign(**keys, alive=alive)[PRUNED_ROLES.column_names])


# Savings from removal: parameters, memory, time.


_COLUMNS = ["model", "heads", "parameters", "megabytes", "batch", "milliseconds", "speed-up"]


def compare_speed(
    models: Sequence[Model], *, batches: Sequence[int] = (1, 32), tokens: int = 32, rounds: int = 10
) -> pd.DataFrame:
    """Size and measured speed of models, compared with the first one.

    Each round runs every model once on the same random token ids, so that load on the machine affects all models
    equally.

    Args:
        models: A model and its pruned versions.
        batches: Numbers of sentences per forward pass, each measured.
        tokens: Tokens per sentence.
        rounds: Timed forward passes of each model, after one to warm up; the median is reported.

    Returns:
        model, heads, parameters, megabytes (of the weights), batch, milliseconds (median of a forward pass), speed-up
        (the first model's median over this one's).
    """
    if not models or rounds < 1 or tokens < 1:
        raise UserError("compare_speed needs at least one model, one round and one token.")
    rows = []
    for batch in batches:
        inputs = [_inputs(model, batch, tokens) for model in models]
        times: list[list[float]] = []
        for _ in range(rounds + 1):
            times.append([_seconds(model, given) for model, given in zip(models, inputs, strict=True)])
        medians = [statistics.median(own) for own in zip(*times[1:], strict=True)]
        for model, median in zip(models, medians, strict=True):
            rows.append([*_size(model), batch, 1000 * median, medians[0] / median])
    return pd.DataFrame(rows, columns=_COLUMNS)


def _size(model: Model) -> tuple[str, int, int, float]:
    parameters = list(model.module.parameters())
    heads = sum(one.num_heads for one in model.anatomy.attentions())
    weight_bytes = sum(p.numel() * p.element_size() for p in parameters)
    return model.name, heads, sum(p.numel() for p in parameters), weight_bytes / 1e6


def _inputs(model: Model, batch: int, tokens: int) -> dict:
    size = model.module.get_input_embeddings().num_embeddings  # type: ignore[union-attr]
    ids = torch.randint(min(5, size - 1), size, (batch, tokens), generator=torch.Generator().manual_seed(0))
    if len(model.anatomy.stacks) == 1:
        return model_inputs(model, ids)
    output = model.module.get_output_embeddings()
    return model_inputs(model, ids, decoder_input_ids=ids % (1 if output is None else output.weight.shape[0]))


def _seconds(model: Model, inputs: dict) -> float:
    with torch.inference_mode():
        _wait(model)
        start = time.perf_counter()
        model.module(**inputs)
        _wait(model)
    return time.perf_counter() - start


def _wait(model: Model) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
