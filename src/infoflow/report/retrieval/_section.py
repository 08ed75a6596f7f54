"""The section on retrieval: what readers with and without passages know, where they read it, and what they find."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from .._figure import ReportFigure, Section
from .._model_tables import ModelTables
from .._shown_models import ShownModels
from ._answers import answers_figure
from ._course import course_figure
from ._depth import depth_figure
from ._examples import examples_figure
from ._exposure import bits_figure, conflict_figure, knowledge_figure
from ._first_reader import came_able_to_read
from ._flow import ablation_figure, heads_figure, knock_out_figure
from ._found import index_figure, learning_figure, null_figure, scores_figure
from ._learned import learned_figure
from ._memory import memory_figure
from ._rows import of_readers

RETRIEVAL = Section(
    id="retrieval",
    title="Does a model that can look things up still keep them in its layers?",
    lead="Readers that start from the same weights and get the same questions differ in one thing: which passage they "
    "may read. What do their weights hold, at which depth does what they read enter, which heads carry it, and what do "
    "they find?",
    names={
        "knowledge-arms": "retrieval/knowledge",
        "stored-bits": "retrieval/bits",
        "evidence-depth": "retrieval/depth",
        "memory-exposure": "retrieval/memory",
        "evidence-upward": "retrieval/knock-outs",
        "evidence-heads": "retrieval/heads",
        "evidence-ablation": "retrieval/ablation",
        "conflict": "retrieval/conflict",
        "index-swap": "retrieval/index",
        "text-answers": "retrieval/answers",
        "retrieval-scores": "retrieval/scores",
        "null-passage": "retrieval/null-passage",
        "retrieval-learning": "retrieval/learning",
        "retrieval-learned": "retrieval/parts",
        "retrieval-course": "retrieval/course",
        "retrieval-examples": "retrieval/examples",
    },
)
_FIGURES: tuple[tuple[str, Callable[[pd.DataFrame, ShownModels], ReportFigure | None]], ...] = (
    ("knowledge", knowledge_figure),
    ("knowledge", bits_figure),
    ("knowledge_lens", depth_figure),
    ("knowledge_lens", memory_figure),
    ("evidence_flow", knock_out_figure),
    ("evidence_heads", heads_figure),
    ("evidence_ablation", ablation_figure),
    ("knowledge_conflict", conflict_figure),
    ("knowledge", index_figure),
    ("retrieval_scores", answers_figure),
    ("retrieval_scores", scores_figure),
    ("retrieval_scores", null_figure),
    ("retrieval_learning", learning_figure),
    ("retrieval_course", course_figure),
    ("allocation_steps", learned_figure),
    ("retrieval_examples", examples_figure),
)
_OVER_TRAINING, _STEPS = ("retrieval_learning", "retrieval_course"), "allocation_steps"


def retrieval_section(tables: ModelTables) -> Section | None:
    """The section, or None where no reader was trained with passages."""
    names = dict.fromkeys(name for name, _ in _FIGURES)
    frames = tables.some(name for name in names if name not in _OVER_TRAINING)
    if _STEPS in frames:  # of models without passages the section on learning tells
        frames[_STEPS] = of_readers(frames[_STEPS])
    over = {name: tables.over_training(name) for name in _OVER_TRAINING}
    frames |= {name: frame for name, frame in over.items() if frame is not None}
    figures = [make(frames[name], tables.models) for name, make in _FIGURES if name in frames]
    shown = [frame for name, frame in frames.items() if name not in _OVER_TRAINING and len(frame)]
    lead = f"{RETRIEVAL.lead} {came_able_to_read(frames)}".rstrip()
    return replace(RETRIEVAL, lead=lead).told_by(figures, tables.models, shown or list(frames.values()))
