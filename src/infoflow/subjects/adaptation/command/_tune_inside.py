"""`infoflow tune --inside`: what tuning changed in layers and heads, what was forgotten, and who learned the task."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ._tune_arm import Arm

if TYPE_CHECKING:
    import pandas as pd

    from infoflow.corpus import Corpus
    from infoflow.results import TableSchema

    from ..measures import AllocationHooks, Tuned


@dataclass(frozen=True, kw_only=True, eq=False)
class InsideTuning:
    """What is looked at beside the scores of one arm."""

    arm: Arm
    text: "Corpus | None"
    """What the pretraining loss is taken on; None: texts of the task."""

    @cached_property
    def hooks(self) -> "AllocationHooks | None":
        """Records who learns the task; nobody is asked who learns a control."""
        from ..measures import AllocationHooks

        arm = self.arm
        if arm.config.control:
            return None
        return AllocationHooks(model=arm.model, data=arm.data, task=arm.task, config=arm.config, folder=arm.recordings)

    def tables(self, tuned: "Tuned") -> "Iterator[tuple[TableSchema, pd.DataFrame]]":
        """All of the inside view, with the columns that say how the models were tuned; of a control how far its spaces
        moved."""
        from ..measures import INSIDE_TABLES, TUNED, TUNING_ALLOCATION, TUNING_CHANGE

        how = tuned.scores.iloc[0][[column.name for column in TUNED]].to_dict()
        for name, frame in self._view(tuned, only=[TUNING_CHANGE.name] if self.arm.config.control else None).items():
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
                f"Loss changes of {self.arm.task.task} in {self.arm.model.name} were not recorded for {seeds}. With "
                "several learning rates the first of several seeds is never recorded, nor are models tuned "
                "earlier without "
                "--inside."
            )

    def _view(self, tuned: "Tuned", only: list[str] | None = None) -> "dict[str, pd.DataFrame]":
        from infoflow.flow import PassOptions
        from infoflow.studies import untrained

        from ..measures import inside_view

        arm, text = self.arm, self.text
        if text is None and arm.task.shape != "generation":  # of what it writes it has the task's loss
            text = arm.data.test
        return inside_view(
            arm.model,
            [one.load(arm.config.device) for one in tuned.models],
            tuned.task,
            arm.data,
            untrained=None if arm.config.control else untrained(arm.model, seed=0),
            pretraining=text,
            options=PassOptions(max_length=tuned.models[0].max_length, corruption=arm.pretrained_for),
            seeds=[one.seed for one in tuned.models],
            only=only,
        )
