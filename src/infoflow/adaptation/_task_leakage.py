"""Test texts of a task that a model can have seen before."""

from collections.abc import Iterator, Mapping
from functools import partial

import pandas as pd

from infoflow.corpus import Corpus, repeated

from ._tables import TASK_LEAKAGE
from ._task import TaskData


def leakage(data: TaskData, others: Mapping[str, Corpus]) -> pd.DataFrame:
    """How many distinct test texts of a task stand in what models were trained on: the table TASK_LEAKAGE.

    Of pairs both texts count, of questions about a text the text alone, since many texts are asked the same. What is
    equal and near is as in `Corpus.split`; `near` counts the equal ones too. A text is looked for as a whole: a
    paragraph that stands in a corpus of sentences is not found.

    Args:
        data: The task; its own training part is the row `train`.
        others: Corpora by what they are: `pretraining`, `domain`.
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
