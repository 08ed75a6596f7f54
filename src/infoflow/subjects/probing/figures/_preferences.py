"""Tests without probes: preferences in minimal pairs, facts, and similarity of texts to their references."""

import math
from functools import partial

import numpy as np
import pandas as pd

from infoflow.report._curves import curves, interval_note
from infoflow.report._figure import Method, ReportFigure
from infoflow.report._in_words import Candidate, clear_cases, estimate_text, extremes_words, number
from infoflow.report._layer_figure import layer_panels, stacked
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._lines import COSINE, SHARE

from ..measures import BERT_SCORE, BERT_SCORE_LAYERS, FILL_IN, MINIMAL_PAIRS
from ._rows import (
    MOST_TASKS,
    above_controls,
    alike_text,
    any_trained,
    best_layer,
    best_layers,
    curves_with,
    held_out_at,
    of,
    sentence_start,
)

_PAIRS = Method(
    id="minimal-pairs",
    title="Minimal pairs",
    text="""
    (1 / <i>P</i>) Σ<sub>p</sub> [<i>s</i><sub>l</sub>(acceptable) &gt; <i>s</i><sub>l</sub>(other)], a tie counts half.
    <i>s</i><sub>l</sub> is the log-probability of the whole sentence where every token is predicted from layer
    <i>l</i> by the model's own output (logit lens); for masked LMs, it is the pseudo-log-likelihood, which masks each
    token in turn (Salazar et al. 2020). Pairs as in BLiMP (Warstadt et al. 2020). Nothing is trained.
    """,
)
_ALL = "all"
_CHANCE = 0.5
_AXIS = {"y_title": "acceptable sentence preferred", "baseline_name": "chance", "bounds": SHARE}


def pairs_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel for all pairs, and one per phenomenon; None without a trained model's preferences."""
    shares = of(frame, metric="preferred")
    if not any_trained(shares):
        return None
    spread = shares[shares["trained"]].groupby(["phenomenon", "layer"])["value"].mean().groupby(level=0).agg(np.ptp)
    phenomena = [str(name) for name in spread.drop(_ALL, errors="ignore").sort_values(ascending=False).index]
    shown = [_ALL, *(phenomena[: MOST_TASKS - 1] if len(phenomena) > 1 else [])]
    tables = {name: curves(of(shares, phenomenon=name)) for name in shown}
    data = stacked(tables, "phenomenon")
    left_out = len(phenomena) - len(shown) + 1
    more = f" Only in the data: {left_out} phenomena that differ less by layer." if len(shown) > 1 < left_out else ""
    return ReportFigure(
        id="probe-pairs",
        question="Which layer first prefers the acceptable sentence?",
        answer=above_controls("acceptable sentences preferred", of(shares, phenomenon=_ALL), models),
        words=_words(of(shares, phenomenon=_ALL), models),
        panels=layer_panels(tables, models, partial(_title, shares), **_AXIS),
        caption=f"{interval_note(data)} Sentences are scored whole, by the logit lens at each layer.{more}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the model's output. Up: the share of minimal pairs (two "
            "sentences that differ in one respect, one acceptable and one not) whose acceptable sentence is more "
            "likely when the next or the masked token is predicted from this layer.",
            "The dotted line is chance, one half; the dashed grey line is an untrained model of this shape.",
            "A share below a half is possible: a model that prefers frequent words may find the wrong sentence more "
            "likely.",
        ],
        method=_PAIRS,
        data=data,
        tables=(MINIMAL_PAIRS.name,),
        payload={"apart": True},
    )


def _title(shares: pd.DataFrame, phenomenon: str) -> str:
    count = int(of(shares, phenomenon=phenomenon)["count"].max())
    name = "all pairs" if phenomenon == _ALL else phenomenon.replace("_", " ")
    return f"{name} ({count:,})"


def _words(own: pd.DataFrame, models: ModelSelection) -> str:
    """Which models prefer the most and the fewest acceptable sentences at their best layers."""
    stated = [Candidate(f"in {series.label}", best.estimate) for series, best in best_layers(own, models).items()]
    return extremes_words(
        "the share of acceptable sentences preferred, at the best layer,",
        stated,
        end=f"chance is {_CHANCE}{f', and it is {more}' if (more := clear_cases(stated, _CHANCE)) else ''}",
    )


_FACTS = Method(
    id="facts-filled-in",
    title="Facts filled in",
    text="""
    P@1: the share of facts (subject, relation, object) whose object is the most likely token for the blank in the
    relation's prompt. Candidates are the objects of all facts that are one token in every model (Petroni et al. 2019).
    At layer <i>l</i> the state of the blank goes through the model's own output (logit lens). Log-probabilities are
    averaged over a family's prompts (Jiang et al. 2020). "All relations": the mean over relations. Nothing is trained.
    """,
)
_FACT_AXIS = {"y_title": "facts filled in correctly", "baseline_name": "most frequent object", "bounds": SHARE}
_WAYS = ["lens", "prompts", "ensemble"]


def facts_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel for all relations, and one per relation that depends on depth; None without a trained model."""
    if not any_trained(frame):
        return None
    way = frame[_WAYS].astype(str).iloc[0].to_dict()  # the first configuration: the logit lens, unmodified prompts
    own = of(frame, **way)
    of_each = of(own, average="relation")
    spread = of_each.groupby(["relation", "layer"])["value"].mean().groupby(level=0).agg(np.ptp)
    relations = [str(name) for name in spread.sort_values(ascending=False).index]
    shown = relations[: MOST_TASKS - 1] if len(relations) > 1 else []
    parts = [of(own, average="macro"), *(of(of_each, relation=name) for name in shown)]
    first = f"all {len(relations)} relations" if len(relations) > 1 else _plain(relations[0])
    names = [first, *map(_plain, shown)]
    tables = {f"{name} ({int(rows['count'].max()):,})": curves(rows) for name, rows in zip(names, parts, strict=True)}
    data = stacked(dict(zip(["all", *shown], tables.values(), strict=True)), "relation")
    left_out = int(parts[0]["left_out"].max())
    unasked = f" {left_out:,} facts were not tested: their object has several tokens, or the prompt is unreadable."
    missing = unasked if left_out else ""
    more = len(relations) - len(shown) if shown else 0
    further = f" Only in the table: {more} relations that differ less between layers." if more else ""
    return ReportFigure(
        id="facts-filled-in",
        question="Which facts can a model fill in, and from which layer on?",
        answer=_fact_sentences(parts[0], models),
        panels=layer_panels(tables, models, **_FACT_AXIS),
        caption=f"{interval_note(data, 'facts')} Prompts: {way['prompts']}; {int(parts[0]['vocabulary'].max()):,} "
        f"objects to choose from.{missing}{further}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the model's output. Up: the share of facts whose object is the "
            "most likely filling of the blank, among the objects of all facts, when the model's output layer is "
            "applied to this layer (logit lens).",
            "The dotted line always answers with the relation's most frequent object, without knowledge of the fact.",
            "A curve that rises only at the end does not mean that lower layers lack the fact: they may hold it in a "
            "form that the output layer does not read.",
        ],
        method=_FACTS,
        data=data,
        tables=(FILL_IN.name,),
        payload={"apart": True},
    )


def _plain(relation: str) -> str:
    return relation.replace("_", " ")


def _fact_sentences(own: pd.DataFrame, models: ModelSelection) -> list[str]:
    """Each model's best layer, compared with the most frequent objects and with prompts without a subject."""
    stated = []
    for series, best in best_layers(own, models).items():
        here = own[(own["series"] == series.key) & (own["layer"] == best.layer) & own["trained"]]
        blind = float(here["without_subject"].mean())
        alone = "" if math.isnan(blind) else f", and prompts without their subject {number(blind, 2)}"
        stated.append(
            f"{series.label} fills in {estimate_text(best.estimate)} of the facts correctly in layer {best.layer} of "
            f"{best.top}{alike_text(best)}; the most frequent objects would be right for "
            f"{number(float(here['baseline'].mean()), 2)}{alone}."
        )
    return [sentence_start(one) for one in stated]


_BERT_SCORES = Method(
    id="bert-score",
    title="BERTScore by layer",
    text="""
    Each token of one text is matched with the token of the other whose vector of layer <i>l</i> has the highest cosine
    with its own. Recall is the mean over the reference's tokens, precision over the candidate's,
    <i>F</i> = 2<i>PR</i> / (<i>P</i> + <i>R</i>) (Zhang et al. 2020). Tokens such as [CLS] do not count. Random pairs
    combine two different scored texts; rescaled scores are (<i>s</i> − <i>b</i>) / (1 − <i>b</i>) with the mean
    <i>b</i> of random pairs in the same layer. Agreement is Pearson's correlation of <i>F</i> with the scores that
    people gave the same pairs; "permuted scores" are these in random order. Intervals resample pairs.
    """,
)
_SCORES = {"f": "F", "precision": "precision", "recall": "recall"}


def bert_score_figure(
    means: pd.DataFrame, agreement: pd.DataFrame | None, models: ModelSelection
) -> ReportFigure | None:
    """One panel for the correlation with human scores if there are any, and one per score.

    None without a trained model.
    """
    if not any_trained(means):
        return None
    panels, data = [], []
    human = None if agreement is None else of(agreement, score="f", labels="human")
    if agreement is not None and human is not None and any_trained(human):
        table = curves_with(
            human.assign(baseline=float("nan")), {"permuted scores": of(agreement, score="f", labels="permuted")}
        )
        title = f"agreement of F with people ({int(human['count'].max()):,} pairs)"
        how = {"y_title": "correlation with people", "bounds": COSINE, "controls": ("permuted scores",)}
        panels += layer_panels({title: table}, models, **how)
        data.append(table.assign(score="f", shows="correlation"))
    rescaled = bool(means["rescaled"].any())
    tables = {f"mean {label}": curves(of(means, score=name)).assign(score=name) for name, label in _SCORES.items()}
    y_title = "share of the way to equal texts" if rescaled else "cosine"
    panels += layer_panels(tables, models, y_title=y_title, baseline_name="random pairs")
    data += [table.assign(shows="mean") for table in tables.values()]
    whole = pd.concat(data, ignore_index=True)
    weights = "Rare tokens weigh more (idf)." if bool(means["idf"].any()) else "All tokens weigh the same."
    scale = " Scores are rescaled: 0 is a random pair of this layer, 1 an equal one." if rescaled else ""
    return ReportFigure(
        id="bert-score",
        question="Which layer measures the similarity of texts best?",
        answer=_text_sentences(of(means, score="f"), human, models),
        panels=panels,
        caption=f"{interval_note(whole, 'pairs')} {weights}{scale}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the top. Up: how well the scores of a layer follow those of "
            "people (Pearson's correlation over pairs), and the mean scores themselves.",
            "The dotted line: mean scores of random pairs; only scores above it show that two texts are similar. Where "
            "a layer's vectors all point in one direction, both lines are high.",
            "A best layer at the very top would be surprising for an encoder: published best layers are lower.",
        ],
        method=_BERT_SCORES,
        data=whole,
        tables=(BERT_SCORE_LAYERS.name, *((BERT_SCORE.name,) if human is not None else ())),
        findings=("probing:P-5",),
        payload={"apart": True},
    )


def _text_sentences(means: pd.DataFrame, human: pd.DataFrame | None, models: ModelSelection) -> list[str]:
    """Each model's best layer by human scores; without these, where texts score above random ones."""
    stated = []
    for series in models.present(means[means["trained"]]):
        best = None if human is None else best_layer(human, series.key)
        if best is not None and human is not None:
            top = held_out_at(human, series.key, best.top).estimate().value
            at_top = "" if best.layer == best.top else f"; the top has {number(top, 2)}"
            stated.append(
                f"{series.label} agrees best with people in layer {best.layer} of {best.top}{alike_text(best)}: "
                f"{estimate_text(best.estimate)}{at_top}."
            )
            continue
        own = means[(means["series"] == series.key) & means["trained"]]
        above = own.assign(above=own["value"] - own["baseline"]).sort_values("above").iloc[-1]
        stated.append(
            f"{series.label} sets these pairs farthest apart from random ones in layer {int(above['layer'])}."
        )
    return [sentence_start(one) for one in stated]
