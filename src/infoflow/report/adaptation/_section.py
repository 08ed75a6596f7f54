"""The section on tuning: what came of it, and what it changed inside."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from .._figure import ReportFigure, Section
from .._model_tables import ModelTables
from .._shown_models import ShownModels
from ._change import change_figure, weights_figure
from ._domain import domain_figure
from ._flipped import flipped_figure
from ._heads import heads_figure
from ._leakage import leaks
from ._learned import learned_figure
from ._overlap import overlap_figure
from ._pruned import pruned_figure
from ._readable import information_figure, label_figure, probes_figure
from ._rows import scores_on_test
from ._scores import scores_figure
from ._single_blocks import single_figure
from ._swaps import swaps_figure
from ._ways import ways_figure
from ._worth import worth_figure

ADAPTATION = Section(
    id="adaptation",
    title="What did fine-tuning change?",
    lead="Pretrained models are tuned for tasks. How well does each do, what is pretraining worth in labelled "
    "examples, which layers and heads does tuning change, and what does the model forget?",
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
)
_INSIDE: tuple[tuple[str, Callable[[pd.DataFrame, ShownModels], ReportFigure | None]], ...] = (
    ("tuning_change", change_figure),
    ("tuning_weights", weights_figure),
    ("label_by_layer", label_figure),
    ("label_by_layer", information_figure),
    ("probes_after_tuning", probes_figure),
    ("layer_swaps", swaps_figure),
    ("layer_swaps", single_figure),
    ("tuning_allocation", learned_figure),
    ("tuning_heads", heads_figure),
    ("tuning_heads", overlap_figure),
    ("task_pruning", pruned_figure),
    ("task_answers", flipped_figure),
)
_OF_ONE_STACK = ("tuning_change", "label_by_layer", "probes_after_tuning", "tuning_weights")


def adaptation_section(tables: ModelTables) -> Section | None:
    """The section, or None where nothing was tuned."""
    models = tables.models
    names = ("tuned_scores", "domain_loss", *dict.fromkeys(name for name, _ in _INSIDE))
    frames = tables.some(names)
    frames |= {name: _main(frames[name], models) for name in _OF_ONE_STACK if name in frames}
    figures: list[ReportFigure | None] = []
    scores = scores_on_test(frames["tuned_scores"]) if "tuned_scores" in frames else None
    if scores is not None:
        figures += [make(scores, models) for make in (scores_figure, ways_figure, worth_figure)]
    if (losses := frames.get("domain_loss")) is not None:
        figures.append(domain_figure(losses, scores, models))
    figures += [make(frames[name], models) for name, make in _INSIDE if name in frames]
    section = ADAPTATION.told_by(figures, models, [frame for frame in frames.values() if "series" in frame])
    leaked = tables.of_run("task_leakage")
    if section is None or leaked is None or not (told := leaks(leaked)):
        return section
    return replace(section, template="leakage.html.jinja", payload={"leaks": told})


def _main(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """The stack that is compared across models, and what is of no stack, such as embeddings that stacks share."""
    return pd.concat([models.main(frame), models.others(frame).query("stack == ''")])
