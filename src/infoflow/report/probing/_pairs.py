"""Which of two sentences each layer finds likelier: the model's own preference, without a probe."""

import pandas as pd

from .._curves import curves, interval_note
from .._figure import Panel, ReportFigure
from .._in_words import Candidate, clear_cases, extremes_words
from .._numbers import estimate_text
from .._samples import Samples
from .._shown_models import ShownModels
from ._methods import PAIRS
from ._rows import MOST_TASKS, against, alike_text, any_trained, best_layer, of, sentence_start, share_chart, span

_ALL = "all"
_CHANCE = 0.5


def pairs_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel of all pairs, and one for each phenomenon; None without a trained model's preferences."""
    shares = of(frame, metric="preferred")
    if not any_trained(shares):
        return None
    spread = shares[shares["trained"]].groupby(["phenomenon", "layer"])["value"].mean().groupby(level=0).agg(span)
    phenomena = [str(name) for name in spread.drop(_ALL, errors="ignore").sort_values(ascending=False).index]
    shown = [_ALL, *(phenomena[: MOST_TASKS - 1] if len(phenomena) > 1 else [])]
    tables = {name: curves(of(shares, phenomenon=name)) for name in shown}
    data = pd.concat([table.assign(phenomenon=name) for name, table in tables.items()], ignore_index=True)
    left_out = len(phenomena) - len(shown) + 1
    more = (
        f" {left_out} further phenomena differ less between layers: in the data." if len(shown) > 1 < left_out else ""
    )
    charts = {name: share_chart(tables[name], models, "acceptable sentence preferred", "chance") for name in shown}
    return ReportFigure(
        id="probe-pairs",
        question="Which layer first prefers the acceptable sentence?",
        answer=_sentences(of(shares, phenomenon=_ALL), models),
        words=_words(of(shares, phenomenon=_ALL), models),
        panels=[Panel.of(charts[name], _title(shares, name)) for name in shown],
        caption=f"{interval_note(data)} Sentences are scored whole, by the logit lens at each layer.{more}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the model's output. Up: the share of minimal pairs (two "
            "sentences that differ in one respect, one acceptable and one not) whose acceptable sentence is the "
            "likelier one when the next or the masked token is predicted from this layer.",
            "The dotted line is chance, one half; the dashed grey one a model of this shape that was never trained.",
            "A share below a half is possible: a model that prefers frequent words may find the wrong sentence "
            "likelier.",
        ],
        method=PAIRS,
        data=data,
        tables=("minimal_pairs",),
        payload={"apart": True},
    )


def _title(shares: pd.DataFrame, phenomenon: str) -> str:
    count = int(of(shares, phenomenon=phenomenon)["count"].max())
    name = "all pairs" if phenomenon == _ALL else phenomenon.replace("_", " ")
    return f"{name} ({count:,})"


def _words(own: pd.DataFrame, models: ShownModels) -> str:
    """Which model prefers most acceptable sentences at its best layer, which fewest."""
    bests = {series: best_layer(own, series.key) for series in models.present(own[own["trained"]])}
    told = [Candidate(f"in {series.label}", best.estimate) for series, best in bests.items() if best is not None]
    return extremes_words(
        "the share of acceptable sentences preferred, at the best layer,",
        told,
        end=f"chance is {_CHANCE}{f', and it is {more}' if (more := clear_cases(told, _CHANCE)) else ''}",
    )


def _sentences(own: pd.DataFrame, models: ShownModels) -> list[str]:
    """Of each model its best layer, and whether it beats chance and the untrained model there."""
    told = []
    for series in models.present(own[own["trained"]]):
        best = best_layer(own, series.key)
        if best is None:
            continue
        here, untrained = (Samples.of(_at(own, series.key, best.layer, trained)) for trained in (True, False))
        beside = f", {against((here - untrained).estimate(), 'the untrained model')}" if untrained else ""
        known = "" if best.estimate.low > _CHANCE else ": not more than chance"
        place = f"in layer {best.layer} of {best.top}{alike_text(best)}"
        told.append(
            f"{series.label} prefers {estimate_text(best.estimate)} of the acceptable ones {place}{known}{beside}."
        )
    return [sentence_start(one) for one in told]


def _at(own: pd.DataFrame, series: str, layer: int, trained: bool) -> pd.DataFrame:
    return own[(own["series"] == series) & (own["layer"] == layer) & (own["trained"] == trained)]
