"""The section over training: a slider through the checkpoints, and the figures that follow it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from .._damaged import unless_damaged
from .._figure import ReportFigure, Section
from .._model_tables import ModelTables
from ..forms._time_axis import CLOCKS, short
from ._allocation import allocation_figure
from ._checks import checks_figure, suspects
from ._claims import claims_figure
from ._course import CheckpointTables
from ._heads import heads_figure
from ._information import information_figure
from ._layers import layers_figure
from ._loss import loss_figure
from ._order import order_figure
from ._phases import phases_figure
from ._prediction import prediction_figures
from ._prunable import prunable_figure
from ._returns import returns_figure
from ._settling import settling_figures
from ._translation import translation_figures

OVER_TRAINING = Section(
    id="over-training",
    title="When does each layer and head become what it is?",
    lead="The same measures at many moments of training, on the same tokens: what comes first, what comes last, and "
    "what the schedule alone would explain.",
    names={
        "loss-over-training": "over-training/loss",
        "phases": "over-training/phases",
        "returns-over-training": "over-training/returns",
        "order-over-training": "over-training/order",
        "layers-over-training": "over-training/layers",
        "heads-over-training": "over-training/heads",
        "ngrams-over-training": "over-training/ngrams",
        "loss-by-position": "over-training/loss-by-position",
        "information-picture": "over-training/information-plane",
        "convergence": "over-training/convergence",
        "convergence-times": "over-training/convergence-times",
        "translation-stages": "over-training/translation",
        "source-contribution": "over-training/source-contribution",
        "allocation-over-training": "over-training/allocation",
        "prunable-over-training": "over-training/prunable-heads",
        "findings-over-training": "over-training/claims",
        "checkpoint-checks": "over-training/checkpoint-checks",
    },
)

_Figures = Callable[[CheckpointTables], list[ReportFigure] | ReportFigure | None]
_FIGURES: tuple[tuple[str, _Figures], ...] = (
    ("the loss over training", loss_figure),
    ("phases", phases_figure),
    ("what returns", returns_figure),
    ("the order over training", order_figure),
    ("the layers over training", layers_figure),
    ("convergence", settling_figures),
    ("the loss change over training", allocation_figure),
    ("heads over training", heads_figure),
    ("prunability over training", prunable_figure),
    ("n-grams and context over training", prediction_figures),
    ("the information picture", information_figure),
    ("the stages of translation", translation_figures),
    (
        "the findings over training",
        lambda course: claims_figure(course.tables.findings_over_training(), course.moments),
    ),
    ("the checks of checkpoints", checks_figure),
)


def over_training_section(tables: ModelTables) -> Section | None:
    """The section, or None where nothing was measured over training."""
    course, left_out = CheckpointTables(tables), []
    if len(course.moments) < 2:
        return None
    figures: list[ReportFigure] = []
    for name, build in _FIGURES:
        # A table that one figure cannot read is no reason to leave out the others.
        found = unless_damaged(lambda build=build: build(course), None, name, left_out)
        figures += [] if found is None else found if isinstance(found, list) else [found]
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
    """What the slider stops at, told on every clock, and the clocks to choose from."""
    labels = {"update": "updates", "tokens": "tokens", "progress": "progress", "lr_share": "learning rate"}
    return {
        "moments": course.moments,
        "told": [_told(course, update) for update in course.moments],
        "clocks": [{"id": name, "label": labels[name], "title": CLOCKS[name]} for name in course.axis.names],
    }


def _told(course: CheckpointTables, update: int) -> str:
    """`update 1,032 · 1.4M tokens · 21% of training`; tokens where all models read as many."""
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
