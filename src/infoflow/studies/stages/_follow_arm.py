"""What arms of retrieval know while they learn, and what of it tells how well they will answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from infoflow.evidence import RETRIEVAL_COURSE, later_answers
from infoflow.flow import agree
from infoflow.foundation import current_display, digest
from infoflow.objectives import RetrieveLearned
from infoflow.results import KEYS, Subject, TableSchema
from infoflow.retrieval import RETRIEVAL_SCORES

from .._arm_measures import arm_course
from .._retrieval_arms import ArmModel, arm_models, relative_cost
from .._study_models import StudyModels
from .._workbench import Part
from ._arm_stage import AbstractArmStage
from ._record_arm import RecordArm
from ._stage import AbstractStage
from ._train_arm import settle_arm_key

_FOLLOWED, _JOINED, _AGAIN = "followed", "followed-joined", "keeping-again"
_VERSION = 1  # raise when the same weights get other numbers
_COURSE = RETRIEVAL_COURSE.with_keys(*(key for key in KEYS if key.name != "update"))  # its updates are its own


@dataclass(frozen=True, kw_only=True, eq=False)
class FollowArm(AbstractArmStage):
    """One arm at the updates that its training kept; one that was trained before they were wanted is trained again."""

    kind = "follow-arm"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[FollowArm]":
        """Behind what records the arm: a second training for that keeps the checkpoints too."""
        recorded = {stage.model.recipe: stage.key for stage in before if isinstance(stage, RecordArm)}
        return [
            cls(model=model, needs=(recorded.get(model.recipe, settle_arm_key(model)),))
            for model in arm_models(models)
            if model.wanted
        ]

    @property
    def estimate(self) -> float:
        looks = 0.05 * len(self.model.wanted)
        if not (self.model.is_trained() and self.model.lacks_checkpoints()):
            return looks
        training = self.model.models.plan.training.updates
        return looks + relative_cost(self.model) * self.model.config.updates / training

    @cached_property
    def key(self) -> str:
        return digest(["follow-arm", settle_arm_key(self.model), self.model.wanted, _VERSION])

    @property
    def label(self) -> str:
        return f"follow {self.model.name}"

    def is_done(self) -> bool:
        return self.is_settled() and agree(self.model.models.bench.done(_FOLLOWED, self._key))

    def run(self) -> dict[str, Any]:
        counts = self.counts
        if agree(counts.lacks_checkpoints()):
            current_display().note(f"Training {counts.name} once more: its checkpoints are not there.")
            counts.train_again(counts.models.bench.path(_AGAIN, self._key))
        plain = {RETRIEVAL_COURSE.name: RETRIEVAL_COURSE}
        counts.models.bench.tables(_FOLLOWED, self._key, plain, lambda: {RETRIEVAL_COURSE.name: arm_course(counts)})
        return {}

    def tables(self) -> Part:
        keys = Subject(recipe=self.model.recipe).keys()
        course = self.model.models.bench.read(_FOLLOWED, self._key)[RETRIEVAL_COURSE.name]
        return {RETRIEVAL_COURSE.name: course.assign(**{name: keys[name] for name in keys if name != "update"})}

    def schemas(self) -> dict[str, TableSchema]:
        return {RETRIEVAL_COURSE.name: _COURSE}

    @property
    def _key(self) -> str:
        return digest([_VERSION, RETRIEVAL_COURSE.version, self.counts.key, self.counts.wanted])


@dataclass(frozen=True, kw_only=True, eq=False)
class JoinArms(AbstractStage):
    """What tells how well the readers of a seed will answer: said of the seed's learned retriever."""

    kind = "join-arms"
    runs_models = False
    followed: Sequence[FollowArm]  # of one seed

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[JoinArms]":
        """One for each seed that has a learned retriever."""
        stages = [stage for stage in before if isinstance(stage, FollowArm)]
        seeds = dict.fromkeys(stage.model.seed for stage in stages if stage.model.arm == RetrieveLearned.name)
        of_seed = {seed: [stage for stage in stages if stage.model.seed == seed] for seed in seeds}
        return [cls(followed=own, needs=tuple(stage.key for stage in own)) for own in of_seed.values()]

    @cached_property
    def key(self) -> str:
        return digest(["join-arms", _VERSION, [stage.key for stage in self.followed]])

    @property
    def label(self) -> str:
        return f"join arms of seed {self._learned.seed}"

    def is_done(self) -> bool:
        return agree(self._bench.done(_JOINED, self.key))

    def run(self) -> dict[str, Any]:
        plain = {RETRIEVAL_SCORES.name: RETRIEVAL_SCORES}
        self._bench.tables(_JOINED, self.key, plain, lambda: {RETRIEVAL_SCORES.name: self._join()})
        return {}

    def tables(self) -> Part:
        rows = self._bench.read(_JOINED, self.key)[RETRIEVAL_SCORES.name]
        return {RETRIEVAL_SCORES.name: rows.assign(**Subject(recipe=self._learned.recipe).keys())}

    def schemas(self) -> dict[str, TableSchema]:
        return {RETRIEVAL_SCORES.name: RETRIEVAL_SCORES.with_keys(*KEYS)}

    def _join(self) -> pd.DataFrame:
        courses = [stage.tables()[RETRIEVAL_COURSE.name] for stage in self.followed]
        return later_answers(pd.concat(courses, ignore_index=True))

    @property
    def _learned(self) -> ArmModel:
        return next(stage.model for stage in self.followed if stage.model.arm == RetrieveLearned.name)

    @property
    def _bench(self):
        return self._learned.models.bench
