"""`infoflow tune --inside`: what tuning changed in layers and heads, what was forgotten, and who learned the task."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from infoflow.adaptation import AbstractTask, AllocationHooks, TaskData, TuneConfig, Tuned
    from infoflow.corpus import Corpus
    from infoflow.models import Model
    from infoflow.objectives import AbstractObjective
    from infoflow.results import TableSchema


@dataclass(frozen=True, kw_only=True, eq=False)
class InsideTuning:
    """What is looked at beside the scores of one model tuned in one way."""

    model: "Model"
    """Before tuning."""
    data: "TaskData"
    task: "AbstractTask"
    config: "TuneConfig"
    folder: Path
    """Where recordings of tuning are kept."""
    trained: "AbstractObjective | None"
    """What the model was pretrained for, where that is known."""
    text: "Corpus | None"
    """What the pretraining loss is taken on; None: texts of the task."""

    @cached_property
    def hooks(self) -> "AllocationHooks | None":
        """Records who learns the task; nobody is asked who learns a control."""
        from infoflow.adaptation import AllocationHooks

        if self.config.control:
            return None
        return AllocationHooks(model=self.model, data=self.data, task=self.task, config=self.config, folder=self.folder)

    def tables(self, tuned: "Tuned") -> "Iterator[tuple[TableSchema, pd.DataFrame]]":
        """All of the inside view, with the columns that say how the models were tuned; of a control how far its spaces
        moved."""
        from infoflow.adaptation import INSIDE_TABLES, TUNED, TUNING_ALLOCATION, TUNING_CHANGE

        how = tuned.scores.iloc[0][[column.name for column in TUNED]].to_dict()
        for name, frame in self._view(tuned, only=[TUNING_CHANGE.name] if self.config.control else None).items():
            yield INSIDE_TABLES[name], frame.assign(**how)
        if self.hooks is None:
            return
        allocated = self.hooks.table(tuned.models)
        self._tell_of_unrecorded(tuned, set() if allocated is None else set(allocated["tuning_seed"]))
        if allocated is not None:
            yield TUNING_ALLOCATION, allocated.assign(**how)

    def _tell_of_unrecorded(self, tuned: "Tuned", recorded: set[int]) -> None:
        """Note the seeds of which is not known who learned the task."""
        from infoflow.foundation import current_display

        missing = [one.seed for one in tuned.models if one.seed not in recorded]
        if missing:
            seeds = f"seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            current_display().note(
                f"Who learned {self.task.task} in {self.model.name} is not recorded of {seeds}: of several learning "
                "rates the first seed never is, unless it is alone, nor is what was tuned before without --inside."
            )

    def _view(self, tuned: "Tuned", only: list[str] | None = None) -> "dict[str, pd.DataFrame]":
        from infoflow.adaptation import inside_view
        from infoflow.flow import PassOptions
        from infoflow.studies import untrained

        text = self.text
        if text is None and self.task.shape != "generation":  # of what it writes it has the task's loss
            text = self.data.test
        return inside_view(
            self.model,
            [one.load(self.config.device) for one in tuned.models],
            tuned.task,
            self.data,
            untrained=None if self.config.control else untrained(self.model, seed=0),
            pretraining=text,
            options=PassOptions(max_length=tuned.models[0].max_length, corruption=self.trained),
            seeds=[one.seed for one in tuned.models],
            only=only,
        )
