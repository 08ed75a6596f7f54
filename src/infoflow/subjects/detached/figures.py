"""The figure of detached translations: how well each score detects each kind."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import finished, tips
from infoflow.report.forms._rows import cells, squares
from infoflow.results import Estimate, Samples

from .measures import DETACHED_TRANSLATION, KINDS, LOG_PROBABILITY, RANDOM, SOURCE_SHARE

_ROW = 30
_NAMES = {LOG_PROBABILITY: "log-probability", RANDOM: "random"}
_METHOD = Method(
    id="detached-translation",
    title="Detached translations",
    text=r"""
    The score of a translation is a mean over its tokens: of the share of the source (ALTI+) after a decoder layer, or
    of the log-probability. The AUC is the probability that a detached translation has the lower score; ties count as
    one half. Three kinds of detached translations are the corpus's translations with another source: that of a sentence
    of similar length (swapped), a source without text (emptied), or one with half of its tokens from another sentence
    (replaced). The fourth kind is the fifth of the model's own translations with the lowest chrF (worst).
    """,
)


def _detached(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    panels, answer = [], []
    frame = frame.loc[frame["trained"]]
    for series in tables.models.present(frame):
        own = frame[frame["series"] == series.key]
        panels.append(Panel(spec=_chart(pd.DataFrame([*_cells(own)])), title=series.label))
        answer.append(_answer(series, own))
    count = int(frame["count"].max())
    caption = f"Up to {count:,} translations. Colours: AUC, from .5 (pale) to 1."
    return Drawn(data=frame.drop(columns="replicates"), panels=panels, answer=answer, caption=caption)


def _cells(own: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for key, rows in own.groupby(["score", "layer", "kind"], sort=False):
        score, layer, kind = cast(tuple[str, int, str], key)
        found = Samples.of(rows, scale="share").estimate()
        yield {
            "score": _NAMES.get(score, f"source share, layer {layer}"),
            "kind": kind,
            "auc": found.value,
            "text": f"{found.value:.2f}",
            "shown": f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})",
            "control": f"{rows['baseline'].mean():.3f}",
        }


def _chart(rows: pd.DataFrame) -> dict[str, Any]:
    scores = list(dict.fromkeys(rows["score"]))
    kinds = [kind for kind in KINDS if kind in set(rows["kind"])]
    tooltip = tips("score:N|score", "kind:N|detached", "shown:N|AUC", "control:N|random score")
    x, y = cells("x", "kind", None, kinds), cells("y", "score", None, scores, labelLimit=150)
    return finished(squares(rows, x, y, "auc", ends=(0.5, 1.0), tooltip=tooltip), _ROW * len(scores))


def _answer(series: Series, own: pd.DataFrame) -> str:
    kinds = [kind for kind in KINDS if kind in set(own["kind"])]
    parts = []
    for kind in kinds:
        of_kind = own[own["kind"] == kind]
        shares = of_kind[of_kind["score"] == SOURCE_SHARE]
        share = Samples.of(shares[shares["layer"] == shares["layer"].max()], scale="share").estimate()
        likely = Samples.of(of_kind[of_kind["score"] == LOG_PROBABILITY], scale="share").estimate()
        parts.append(f"{kind}: {_words(share)}, log-probability {_words(likely)}")
    return f"AUC of the source share after the last decoder layer of {series.label}: {'; '.join(parts)}."


def _words(found: Estimate) -> str:
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


DETACHED = DeclaredFigure(
    name="detached/auc",
    id="detached-translation",
    question="Does the share of the source show which translations ignore it?",
    how_to_read=(
        "Each square is the AUC of a score for one kind of detached translation: .5 is chance, 1 detects all of them. "
        "The source share is read after each decoder layer. The last two rows are the model's own log-probability and "
        "a random score.",
    ),
    method=_METHOD,
    tables=(DETACHED_TRANSLATION.name,),
    draw=_detached,
    findings=("heads:D1", "heads:D2"),
)
_SECTION = Section(
    id="detached",
    title="Which translations ignore their source?",
    lead="A translation is detached if it would be the same for another source.",
    names=names_of([DETACHED]),
)


def detached_section(tables: ModelTables) -> Section | None:
    """The section, or None if no model's translations were scored."""
    frame = tables.get(DETACHED_TRANSLATION.name)
    if frame is None or not bool(frame["trained"].any()):
        return None
    figure = DETACHED.of(frame, tables)
    return None if figure is None else replace(_SECTION, figures=[figure], keys=tables.models.present(frame))


SECTIONS = ((135, _SECTION, detached_section),)
