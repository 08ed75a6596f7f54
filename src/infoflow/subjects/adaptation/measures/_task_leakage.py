"""Test texts of a task that a model may have seen before."""

from collections.abc import Iterator, Mapping
from functools import partial

import pandas as pd

from infoflow.corpus import Corpus, repeated

from ._tables import TASK_LEAKAGE
from ._task import TaskData


def leakage(data: TaskData, others: Mapping[str, Corpus]) -> pd.DataFrame:
    """How many distinct test texts of a task occur in training data: the table TASK_LEAKAGE.

    Both texts of a pair count; for questions about a text only the text does, since many texts share questions. Equal
    and near are defined as in `Corpus.split`; `near` includes equal texts. Texts are matched as a whole: a paragraph is
    not found in a corpus of sentences.

    Args:
        data: The task; its own training part gives the row `train`.
        others: Corpora by role: `pretraining`, `domain`.
    """
    rows = []
    for within, corpus in {**others, "train": data.train}.items():
        texts, same, near = repeated(_texts(data.test), partial(_texts, corpus))
        rows.append({"task": data.name, "within": within, "texts": texts, "same": same, "near": near})
    return TASK_LEAKAGE.conform(pd.DataFrame(rows))


def _texts(corpus: Corpus) -> Iterator[str]:
    for name in ("text", "second"):
        if name in corpus.columns:
            yield from corpus.column(name)
