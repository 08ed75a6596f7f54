"""Cards of the front page: the layer that reads each task best."""

import pandas as pd

from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report.front_page._measures import CardMeasure
from infoflow.results import PROBE_SCORES

from ._rows import all_examples, of, one_probe, task_label, tasks_of


def _of_tasks(tables: ModelTables) -> list[CardMeasure]:
    frame = tables.get(PROBE_SCORES.name)
    return [] if frame is None else [_of_task(task) for task in tasks_of(of(frame, metric="accuracy", labels="task"))]


def _of_task(task: str) -> CardMeasure:
    def rows(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
        scores = of(frame, metric="accuracy", words="all", labels="task", task=task)
        return models.main(all_examples(one_probe(scores)))

    name = task_label(task)
    return CardMeasure(
        figure="probe-accuracy",
        axis="accuracy",
        noun=f"the accuracy of {name}",
        section="probing",
        question=f"Which layer is best for {name}?",
        table=PROBE_SCORES.name,
        rows=rows,
        contrast="best",
        opening="A probe reads it best ",
        rises="in layer {at} of {line}, with an accuracy of",
        falls="in layer {at} of {line}, with an accuracy of",
        bounded=True,
        fills=True,
    )


CARDS = (_of_tasks,)
