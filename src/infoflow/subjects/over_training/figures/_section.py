"""The section over training: a slider through the checkpoints, and the figures that follow it."""

from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.report._damaged import unless_damaged
from infoflow.report._declared import names_of
from infoflow.report._figure import Section
from infoflow.report._model_tables import ModelTables
from infoflow.report.forms._time_axis import CLOCKS, short

from ._claims import COMPLAINTS, FINDINGS, suspects
from ._course import CheckpointTables
from ._heads import HEADS, PRUNABLE
from ._information import INFORMATION
from ._layers import LAYERS
from ._loss import ALLOCATION, LOSS
from ._order import ORDER
from ._phases import PHASES_FIGURE, RETURNS_FIGURE
from ._prediction import AGREEMENT, POSITIONS
from ._settling import CURVES, TIMES
from ._translation import SOURCE, STAGES

_FIGURES = (
    LOSS,
    PHASES_FIGURE,
    RETURNS_FIGURE,
    ORDER,
    LAYERS,
    CURVES,
    TIMES,
    ALLOCATION,
    HEADS,
    PRUNABLE,
    AGREEMENT,
    POSITIONS,
    INFORMATION,
    STAGES,
    SOURCE,
    FINDINGS,
    COMPLAINTS,
)
OVER_TRAINING = Section(
    id="over-training",
    title="When do layers and heads take their final form?",
    lead="The same measures on the same tokens at many checkpoints: what comes first, what comes last, and what "
    "the schedule alone would explain.",
    names=names_of(_FIGURES),
)


def over_training_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was measured over training."""
    course, left_out = CheckpointTables(tables), []
    if len(course.moments) < 2:
        return None
    # A table that one figure cannot read does not remove the others.
    found = [
        unless_damaged(lambda one=one: one.of(course), None, f"the figure {one.name}", left_out) for one in _FIGURES
    ]
    figures = [figure for figure in found if figure is not None]
    if not figures:
        return None
    notes = [note for note in (suspects(course), *left_out) if note]
    frames = [frame for frame in (figure.data for figure in figures) if "series" in frame]
    return replace(
        OVER_TRAINING,
        figures=figures,
        keys=course.models.present(course.clocks, *(frame[["series"]] for frame in frames)),
        notes=notes,
        template="timeline.html.jinja",
        payload=_timeline(course),
    )


def _timeline(course: CheckpointTables) -> dict[str, Any]:
    """The slider's stops, labelled on every clock, and the available clocks."""
    labels = {"update": "updates", "tokens": "tokens", "progress": "progress", "lr_share": "learning rate"}
    return {
        "moments": course.moments,
        "told": [_told(course, update) for update in course.moments],
        "clocks": [{"id": name, "label": labels[name], "title": CLOCKS[name]} for name in course.axis.names],
    }


def _told(course: CheckpointTables, update: int) -> str:
    """`update 1,032 · 1.4M tokens · 21% of training`; tokens only if all models read the same number."""
    own = course.clocks[course.clocks["update"] == update]
    parts = [f"update {update:,}"]
    tokens = own["tokens"].dropna().round()
    if len(set(tokens)) == 1:
        parts.append(f"{short(float(tokens.iloc[0]))} tokens")
    progress = own["progress"].dropna()
    if len(progress) and float(progress.max() - progress.min()) < 0.005:
        parts.append(f"{_percent(progress)} of training")
    return " · ".join(parts)


def _percent(shares: pd.Series) -> str:
    share = 100 * float(shares.mean())
    return f"{share:.2g}%" if 0 < share < 1 else f"{share:.0f}%"
