"""The section on tuning: results of tuning, and what it changed inside the models."""

from dataclasses import replace

import pandas as pd

from infoflow.report._declared import names_of
from infoflow.report._figure import Section
from infoflow.report._model_tables import ModelTables
from infoflow.report._shown_models import ShownModels

from ..measures import (
    LABEL_BY_LAYER,
    PROBES_AFTER_TUNING,
    TASK_LEAKAGE,
    TASK_SCORES,
    TUNING_CHANGE,
    TUNING_WEIGHTS,
)
from ._change import CHANGE, LEARNED, WEIGHTS
from ._flipped import FLIPPED
from ._heads import HEADS, OVERLAP, PRUNED
from ._readable import INFORMATION_FIGURE, LABEL, PROBES
from ._rows import scores_on_test
from ._scores import SCORES, WAYS, leaks
from ._swaps import SINGLE_BLOCKS, SWAPS
from ._worth import DOMAIN, WORTH

_FIGURES = (
    SCORES,
    WAYS,
    WORTH,
    DOMAIN,
    CHANGE,
    WEIGHTS,
    LABEL,
    INFORMATION_FIGURE,
    PROBES,
    SWAPS,
    SINGLE_BLOCKS,
    LEARNED,
    HEADS,
    OVERLAP,
    PRUNED,
    FLIPPED,
)
ADAPTATION = Section(
    id="adaptation",
    title="What did fine-tuning change?",
    lead="Pretrained models are tuned for tasks. How well does each do, what is pretraining worth in labelled "
    "examples, which layers and heads does tuning change, and what does the model forget?",
    names=names_of(_FIGURES),
)
_OF_ONE_STACK = (TUNING_CHANGE.name, LABEL_BY_LAYER.name, PROBES_AFTER_TUNING.name, TUNING_WEIGHTS.name)


def adaptation_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was tuned."""
    models = tables.models
    frames = tables.some(dict.fromkeys(figure.tables[0] for figure in _FIGURES))
    frames |= {name: _main(frames[name], models) for name in _OF_ONE_STACK if name in frames}
    drawn = frames | {name: scores_on_test(frames[name]) for name in (TASK_SCORES.name,) if name in frames}
    known = [figure for figure in _FIGURES if figure.tables[0] in drawn]
    figures = [figure.of(*map(drawn.get, figure.tables), models) for figure in known]
    section = ADAPTATION.told_by(figures, models, [frame for frame in frames.values() if "series" in frame])
    leaked = tables.of_run(TASK_LEAKAGE.name)
    if section is None or leaked is None or not (told := leaks(leaked)):
        return section
    return replace(section, template="leakage.html.jinja", payload={"leaks": told})


def _main(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """The stack that is compared across models, plus parts outside any stack, such as shared embeddings."""
    return pd.concat([models.main(frame), models.others(frame).query("stack == ''")])
