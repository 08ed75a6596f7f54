"""Pretrained or external models, on which claims about each model by itself are judged too.

The table `given_scores` lists these models, with a loss on the sentences that were read. A claim about a masked LM, or
about all models, is tested on each listed model, which the note of its row names.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from infoflow.objectives import OBJECTIVES
from infoflow.results import END, GIVEN_SCORES, Spec

from ._condition import short
from ._finding import Finding
from ._model_group import NAMES, ModelGroup, Tables, group_of

TABLE = GIVEN_SCORES.name
_LOSS = OBJECTIVES["causal-lm"].metrics[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenModel:
    """A model of the table `given_scores`."""

    name: str
    task: str  # what its head predicts; "encoder": no head
    architecture: str
    loss: float  # nats per token; NaN: no prediction head
    high: float  # upper end of its interval
    unigram: float  # the unigram baseline

    def why_not(self) -> str | None:
        """Why it counts as not having learned its task; None if it has learned it or has no head to test."""
        if np.isnan(self.loss) or _LOSS.learned(np.nan, self.high, self.unigram):
            return None
        return (
            f"the model {self.name} has not learned its task: {short(self.loss)} nats per token (up to "
            f"{short(self.high)}), {_LOSS.needed(self.unigram)}"
        )

    def notes(self, finding: Finding) -> list[str]:
        """What a reader of the verdict should know about the model."""
        about = finding.learned[0]
        told = [f"judged on {self.name}, which was given"]
        if self.task != about.name:
            told.append(f"the claim is about a {NAMES[about]}; {self.name} is {_KINDS.get(self.task, self.task)}")
        if np.isnan(self.loss):
            told.append(f"{self.name} has no output head: that it has learned is taken from whoever gave it")
        return told


_KINDS = {"encoder": "an encoder without a head", "causal-lm": "a causal LM", "masked-lm": "a masked LM"}


def given_models(tables: Tables) -> list[GivenModel]:
    """The pretrained or external models, in the order of the table; [] for a study."""
    frame = tables.get(TABLE)
    needed = {"model", "objective", "architecture", "trained", "value", "high", "baseline"}
    if frame is None or not needed <= set(frame.columns):
        return []
    rows = frame[frame["trained"].astype(bool)].drop_duplicates("model").to_dict("records")
    return [
        GivenModel(
            name=str(row["model"]),
            task=str(row["objective"]),
            architecture=str(row["architecture"]),
            loss=float(row["value"]),
            high=float(row["high"]),
            unigram=float(row["baseline"]),
        )
        for row in rows
    ]


def group_of_given(tables: Tables, names: Iterable[str], model: GivenModel, objective: Spec) -> ModelGroup:
    """The named tables' rows about one such model and its control, as if it were a model of the objective."""
    kept: dict[str, pd.DataFrame] = {}
    for name in names:
        frame = tables.get(name)
        if frame is not None and {"model", "objective"} <= set(frame.columns):
            own = frame[frame["model"] == model.name]
            if len(own):
                kept[name] = own.assign(objective=objective.name, variant=objective.variant)
    return group_of(kept, model.architecture, END)
