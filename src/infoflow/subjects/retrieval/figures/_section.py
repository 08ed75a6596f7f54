"""The section on retrieval: what readers with and without passages know, where they read it, and what they find."""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from infoflow.report._declared import names_of
from infoflow.report._figure import Section
from infoflow.report._model_tables import ModelTables
from infoflow.report._numbers import number
from infoflow.results import RETRIEVAL_LEARNING, RETRIEVAL_SCORES
from infoflow.subjects.adaptation.figures._rows import of
from infoflow.subjects.allocation.measures import ALLOCATION_STEPS

from ..measures import KNOWLEDGE, RETRIEVAL_COURSE
from ._course import ANSWERS_OVER_UPDATES, REMOVAL, TERMS
from ._depth import DEPTH, MEMORY
from ._examples import EXAMPLES
from ._exposure import BITS, CONFLICT, KNOWLEDGE_FIGURE
from ._flow import ABLATION, HEADS, KNOCK_OUT
from ._found import ANSWERS, INDEX, NULL, SCORES
from ._rows import every_exposure, of_readers, plain_arms

_FIGURES = (
    KNOWLEDGE_FIGURE,
    BITS,
    DEPTH,
    MEMORY,
    KNOCK_OUT,
    HEADS,
    ABLATION,
    CONFLICT,
    INDEX,
    ANSWERS,
    SCORES,
    NULL,
    TERMS,
    ANSWERS_OVER_UPDATES,
    REMOVAL,
    EXAMPLES,
)
_TABLES = tuple(dict.fromkeys(figure.tables[0] for figure in _FIGURES))
RETRIEVAL = Section(
    id="retrieval",
    title="Does a model that can look facts up still store them in its layers?",
    lead="Readers that start from the same weights and get the same questions differ in one thing: which passage "
    "they may read. What do their weights store, which passages do they find, at which depth does evidence "
    "enter, and which heads carry it?",
    names=names_of(_FIGURES),
)
_OVER_TRAINING, _STEPS = (RETRIEVAL_LEARNING.name, RETRIEVAL_COURSE.name), ALLOCATION_STEPS.name


def retrieval_section(tables: ModelTables) -> Section | None:
    """The section, or None if no reader was trained with passages."""
    frames = tables.some(name for name in _TABLES if name not in _OVER_TRAINING)
    if _STEPS in frames:  # the section on learning covers models without passages
        frames[_STEPS] = of_readers(frames[_STEPS])
    over = {name: tables.over_training(name) for name in _OVER_TRAINING}
    frames |= {name: frame for name, frame in over.items() if frame is not None}
    known = [figure for figure in _FIGURES if figure.tables[0] in frames]
    figures = [figure.of(frames[figure.tables[0]], tables.models) for figure in known]
    shown = [frame for name, frame in frames.items() if name not in _OVER_TRAINING and len(frame)]
    lead = f"{RETRIEVAL.lead} {_first_reader(frames)}".rstrip()
    return replace(RETRIEVAL, lead=lead).told_by(figures, tables.models, shown or list(frames.values()))


def _first_reader(frames: Mapping[str, pd.DataFrame]) -> str:
    """How long readers had learned to read beforehand, and how well they read this world then; "" if they had not."""
    scores = frames.get(RETRIEVAL_SCORES.name)
    if scores is None or (told := scores[scores["metric"] == "read_updates"]).empty:
        return ""
    before = f"learned to read right passages of another world in {number(told['value'].max(), 0)} updates"
    right, which = _right(frames.get(KNOWLEDGE.name)), "of this world's held-out questions with the right passage"
    reads = "" if right is None else f" and then answered {number(right, 2)} {which}"
    return f"Before this training, their initial reader {before}{reads}; “untrained” means this reader here."


def _right(knowledge: pd.DataFrame | None) -> float | None:
    """Correct answers before training about held-out facts, with the right passage."""
    if knowledge is None:
        return None
    own = every_exposure(plain_arms(knowledge[~knowledge["trained"]]))
    own = of(own, facts="held out", document="gold", reading="raw", index="as-trained", layer=-1, metric="p1")
    return float(own["value"].mean()) if len(own) else None
