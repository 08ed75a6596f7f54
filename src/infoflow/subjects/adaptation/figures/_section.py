"""The report's section on tuning: its figures in order, and a note on leaked test texts."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from infoflow.report._figure import ReportFigure, Section
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables

from ..measures import (
    DOMAIN_LOSS,
    LABEL_BY_LAYER,
    LAYER_SWAPS,
    PROBES_AFTER_TUNING,
    TASK_ANSWERS,
    TASK_LEAKAGE,
    TASK_PRUNING,
    TASK_SCORES,
    TUNING_ALLOCATION,
    TUNING_CHANGE,
    TUNING_HEADS,
    TUNING_WEIGHTS,
)
from ._change import change_figure, learned_figure, weights_figure
from ._flipped import flipped_figure
from ._heads import heads_figure, overlap_figure, pruned_figure
from ._readable import information_figure, label_figure, probes_figure
from ._rows import scores_on_test
from ._scores import scores_figure, ways_figure
from ._swaps import single_figure, swaps_figure
from ._worth import domain_figure, worth_figure

_WITHIN = {
    "pretraining": "the pretraining corpus",
    "domain": "the domain's corpus",
    "train": "the task's own training part",
}


def leaks(frame: pd.DataFrame) -> list[str]:
    """One sentence per task and corpus that share test texts; empty if none do."""
    own = frame[(frame["same"] > 0) | (frame["near"] > 0)].drop_duplicates(["task", "within"])
    return [_sentence(row) for row in own.to_dict("records")]


def _sentence(row: dict) -> str:
    same, near, texts = (int(row[name]) for name in ("same", "near", "texts"))
    where = _WITHIN.get(str(row["within"]), str(row["within"]))
    apart = near - same  # identical texts count as near, too
    parts = [f"{same:,} occur in {where}"] if same else []
    parts += [f"{apart:,} {'more ' if same else ''}differ by one word from a text of {where}"] if apart else []
    return f"{row['task']}: of {texts:,} test texts {' and '.join(parts)}."


# The section on tuning: results of tuning, and what it changed inside the models.

ADAPTATION = Section(
    id="adaptation",
    short="Tuning",
    title="What did fine-tuning change?",
    lead="Pretrained models are tuned for tasks. How good is each, how many labelled examples is pretraining worth, "
    "which layers and heads does tuning change, and what does the model forget?",
    names={
        "tuned-scores": "adaptation/scores",
        "tuned-ways": "adaptation/methods",
        "tuned-domain": "adaptation/domain",
        "tuned-worth": "adaptation/labelled-examples",
        "tuning-change": "adaptation/change",
        "tuning-weights": "adaptation/weights",
        "label-by-layer": "adaptation/label",
        "information-after-tuning": "adaptation/information",
        "probes-after-tuning": "adaptation/probes",
        "layer-swaps": "adaptation/layer-swaps",
        "single-blocks": "adaptation/single-blocks",
        "tuning-learned": "adaptation/allocation",
        "tuned-heads": "adaptation/heads",
        "head-overlap": "adaptation/head-overlap",
        "tuned-pruning": "adaptation/pruning",
        "tuned-flipped": "adaptation/flipped",
    },
    folded=("tuning-weights", "single-blocks", "head-overlap"),
)
_INSIDE: tuple[tuple[str, Callable[[pd.DataFrame, ModelSelection], ReportFigure | None]], ...] = (
    (TUNING_CHANGE.name, change_figure),
    (TUNING_WEIGHTS.name, weights_figure),
    (LABEL_BY_LAYER.name, label_figure),
    (LABEL_BY_LAYER.name, information_figure),
    (PROBES_AFTER_TUNING.name, probes_figure),
    (LAYER_SWAPS.name, swaps_figure),
    (LAYER_SWAPS.name, single_figure),
    (TUNING_ALLOCATION.name, learned_figure),
    (TUNING_HEADS.name, heads_figure),
    (TUNING_HEADS.name, overlap_figure),
    (TASK_PRUNING.name, pruned_figure),
    (TASK_ANSWERS.name, flipped_figure),
)
_OF_ONE_STACK = (TUNING_CHANGE.name, LABEL_BY_LAYER.name, PROBES_AFTER_TUNING.name, TUNING_WEIGHTS.name)


def adaptation_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was tuned."""
    models = tables.models
    names = (TASK_SCORES.name, DOMAIN_LOSS.name, *dict.fromkeys(name for name, _ in _INSIDE))
    frames = tables.some(names)
    frames |= {name: _main(frames[name], models) for name in _OF_ONE_STACK if name in frames}
    figures: list[ReportFigure | None] = []
    scores = scores_on_test(frames[TASK_SCORES.name]) if TASK_SCORES.name in frames else None
    if scores is not None:
        figures += [make(scores, models) for make in (scores_figure, ways_figure, worth_figure)]
    if (losses := frames.get(DOMAIN_LOSS.name)) is not None:
        figures.append(domain_figure(losses, scores, models))
    figures += [make(frames[name], models) for name, make in _INSIDE if name in frames]
    section = ADAPTATION.drawn_with(figures, models, [frame for frame in frames.values() if "series" in frame])
    leaked = tables.of_run(TASK_LEAKAGE.name)
    if section is None or leaked is None or not (stated := leaks(leaked)):
        return section
    return replace(section, template="leakage.html.jinja", payload={"leaks": stated})


def _main(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """The stack that is compared across models, plus parts outside any stack, such as shared embeddings."""
    return pd.concat([models.main(frame), models.others(frame).query("stack == ''")])
