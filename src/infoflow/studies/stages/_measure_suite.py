"""Measure one checkpoint of a series as `analyze` would measure its folder alone."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.flow import AbstractMeasure, Failure, PassOptions, agree
from infoflow.foundation import current_display, digest
from infoflow.over_training import Ahead, Clock, SuiteCheckpoint, over_training
from infoflow.results import Subject, TableSchema

from .._given import GivenModel
from .._measures import measures_by_table
from .._quiet import without_notes
from .._workbench import Part
from ._loaded_once import LoadedOnce
from ._measure import MEASURED
from ._measure_given import MeasureGiven
from ._pairs import described
from ._stage import AbstractStage
from ._weigh import WeighCheckpoint

_DONE = "checkpoints"  # where the workbench keeps which tables belong to a checkpoint


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureSuiteCheckpoint(AbstractStage):
    """One checkpoint, fetched if need be, weighed and measured while it is there.

    The work is `MeasureGiven`'s, so its rows are bit for bit those of an analysis of its folder.
    """

    kind = "measure"
    weighing: WeighCheckpoint
    passes: PassOptions
    measures: Sequence[AbstractMeasure]
    loaded: LoadedOnce[SuiteCheckpoint] | None = None  # what it is compared with
    ahead: Ahead | None = None
    tells: bool = True  # False: notes are those of another checkpoint of its series, and were told there

    @cached_property
    def key(self) -> str:
        return digest(["checkpoint", self.weighing.key, described(self.measures), self.passes.key])

    @property
    def label(self) -> str:
        return f"measure {self.weighing.series} {self.weighing.checkpoint.name}"

    def is_done(self) -> bool:
        if not agree(self.weighing.is_done() and self.weighing.bench.done(_DONE, self.key)):
            return False
        return agree(all(self.weighing.bench.done(MEASURED, key) for key in self._keys().values()))

    def run(self) -> dict[str, Any]:
        weighing = self.weighing
        place = weighing.checkpoint.place
        with self.ahead.opened(place) if self.ahead else place.opened(weighing.keep_downloads) as folder:
            weighing.look(folder)
            keys: dict[str, str] = {}
            if weighing.facts["fault"] or weighing.facts["task"] == "":
                current_display().warn(f"{weighing.checkpoint.name} cannot be measured. {weighing.facts['fault']}")
            else:
                given = GivenModel(source=str(folder), name=self._name, trained=True)
                with nullcontext() if self.tells else without_notes():
                    stage = MeasureGiven.of(
                        given, weighing.options, self.passes, weighing.corpus, self.measures, weighing.bench
                    )
                    keys = stage.table_keys()
                    try:
                        stage.run()
                    finally:
                        if self.loaded:
                            self.loaded.clear()
        weighing.bench.remove(_DONE, self.key)
        weighing.bench.facts(_DONE, self.key, lambda: {"tables": keys})
        return {"failures": len(self.failures())}

    @property
    def _name(self) -> str:
        return f"{self.weighing.series} {self.weighing.checkpoint.name}"

    def _keys(self) -> dict[str, str]:
        """What each of its tables depends on; known once its weights were read."""
        return self.weighing.bench.read_facts(_DONE, self.key)["tables"]

    def rows(self, subject: Subject, clock: Clock) -> Part:
        """Its tables over training, of a checkpoint with these weights."""
        stored = self.weighing.bench.read_each(MEASURED, self._keys())
        keys = {**subject.keys(), **clock.columns()}
        named = {measure.name: over_training(measure.table).name for measure in self.measures}
        return {named[name]: frame.assign(**keys) for name, frame in stored.items()}

    def schemas(self) -> dict[str, TableSchema]:
        found = [over_training(writing[0].table) for writing in measures_by_table(self.measures).values()]
        return {schema.name: schema for schema in found}

    def failures(self) -> list[Failure]:
        return self.weighing.bench.failures(MEASURED, self._keys())
