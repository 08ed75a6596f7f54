"""Stages that train the readers of `[retrieval]` and record their loss changes."""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import current_display, digest
from infoflow.results import (
    RETRIEVAL_LEARNING,
    RETRIEVAL_RUNS,
    RETRIEVAL_SCORES,
    Subject,
    estimate,
    ratio_estimate,
    read_table,
)
from infoflow.studies._result_cache import (
    Part,
    ResultCache,
    check_target,
    discard,
    is_intact,
    is_published,
    keep_sums,
    publish,
)
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractFactStage, AbstractModelStage, AbstractStage
from infoflow.subjects.allocation.measures import TABLES, LossChangeRecorder, RecordConfig, evaluation_set
from infoflow.subjects.allocation.stages import is_begun_with

from ..models import RetrievalModel, require_lexical, retrieval_anatomy
from ._first_readers import WarmedReader, WarmModel
from ._question_reading import SEARCHES
from ._reading_matter import training_accuracy
from ._retrieval_arms import LEARNING, READ, ArmModel, arm_models, at_half_rate, plain_arms, relative_cost

RECORDED = "reading-recorded"  # result cache stage of recordings
_VERSION = 1  # increase when the same plan records differently
_PASS = 1024  # maximum padded query tokens per pass, since each query is read with several passages


def is_recording_asked(arm: ArmModel) -> bool:
    """Whether the plan requests a recording of this model: only plain variants are recorded."""
    return arm.section.allocation_tokens > 0 and not arm.variant


def is_recorded(arm: ArmModel) -> bool:
    return arm.models.bench.done(RECORDED, recording_key(arm))


def recording_key(arm: ArmModel) -> str:
    """Key of everything that the recording of a training depends on."""
    section, parts = arm.section, arm.plan.dynamics.parts
    config = _config(arm)
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in config.untold}
    tables = [[table.name, table.version] for table in TABLES]
    return digest([_VERSION, tables, arm.key, settings, parts, section.allocation_tokens, section.allocation_negatives])


def arm_recorders(arm: ArmModel, model: RetrievalModel, folder: Path) -> list[LossChangeRecorder]:
    r"""The recording hook of a training in `folder`; none if the plan requests none or the training started without it.

    $$ A_g = \sum_t \sum_{i \in g} Δ_{t,i} \int_0^1 \partial_i L(θ_t + sΔ_t)\, ds $$

    L is −log p(y|x) per masked token of a fixed sample of training queries, with the candidates of `fixed_choice`.
    Groups are those of `retrieval_anatomy`.

    Source: [@lan2019lca; @guu2020realm].
    """
    if not is_recording_asked(arm) or not is_begun_with(folder, recording_key(arm), is_recorded(arm)):
        return []
    section, parts = arm.section, arm.plan.dynamics.parts
    objective = dataclasses.replace(arm.objective, fixed_negatives=section.allocation_negatives)
    sample = evaluation_set(
        "train", objective, arm.matter.queries, section.allocation_tokens, parts, micro_tokens=_PASS
    )
    out = arm.models.bench.path(RECORDED, recording_key(arm))
    return [LossChangeRecorder([sample], retrieval_anatomy(model), _config(arm), out)]


def _config(arm: ArmModel) -> RecordConfig:
    """The study's recorder settings, without the most expensive recordings."""
    plan = arm.plan
    return dataclasses.replace(
        plan.dynamics.record(), every=plan.retrieval.allocation_every, parameters=False, check_rules=False
    )


# Train the readers of `[retrieval]`, whose variants of one seed differ only in the passage that they may read.
#
# A run that cannot even answer its training queries has learned nothing on which claims could be judged. If that
# happens to a plain model, all models of the study are trained again at half the rate.

_BY_BLOCK = ("right", "asked")  # keys among the facts about a training


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractWarmStage(AbstractModelStage):
    """The initial model of one seed's variants; its training is never continued, so its checkpoints are removed."""

    named = "warm {self.model.name}"
    model: WarmModel | WarmedReader

    @property
    def estimate(self) -> float:
        return relative_cost(self.model) * self.model.config.updates / self.model.plan.training.updates

    def depends(self) -> list[Any]:
        return [self.kind, self.model.key]

    def make(self) -> dict[str, Any]:
        result = self.model.train()
        facts = {"updates": result.updates, "cpu_seconds": result.cpu_seconds}
        if is_first():
            shutil.rmtree(self.model.folder / "checkpoints", ignore_errors=True)
        wait_for_all()
        return facts


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmReader(AbstractWarmStage):
    """Trains the initial reader of all variants of a seed to read another world."""

    kind = "warm-reader"
    stored = "warmed-reader"
    model: WarmedReader

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[WarmReader]":
        """One stage for each seed, if the plan has such updates."""
        begun = [arm.warmed for arm in arm_models(models) if arm.warmed is not None]
        return [cls(model=model) for model in {model.key: model for model in begun}.values()]

    def make(self) -> dict[str, Any]:
        facts, reads = super().make(), self.model.reads()
        if reads is not None:
            current_display().note(
                f"{self.model.name} answers {reads:.3f} of the held-out questions about another world, given the right "
                f"passage, after {facts['updates']:,} updates."
            )
        return facts | {"reads": reads}


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmRetriever(AbstractWarmStage):
    """Trains the initial retriever of a seed's variants on the inverse cloze task, on the passages."""

    kind = "warm"
    stored = "warmed"
    model: WarmModel

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[WarmRetriever]":
        """One stage for each retriever that a model starts from."""
        if not models.plan.retrieval.warm_updates:
            return []
        begun = [arm.warm for arm in arm_models(models) if arm.warm is not None and arm.variant != "cold"]
        return [cls(model=model) for model in {model.key: model for model in begun}.values()]


@dataclass(frozen=True, kw_only=True, eq=False)
class OfArm(AbstractStage):
    """A stage of one retrieval model, whose rows are about this model."""

    model: ArmModel  # the model at the full rate

    @property
    def models(self) -> StudyModels:
        return self.model.models

    @property
    def cache(self) -> ResultCache:
        return self.models.bench

    @property
    def counts(self) -> ArmModel:
        """The model that counts: the one at half the rate if the study needed that."""
        return replace(self.model, halved=at_half_rate(self.models))

    def columns(self) -> Mapping[str, Any]:
        return Subject(recipe=self.model.recipe).keys()

    def is_settled(self) -> bool:
        """Whether it is known which model counts, which requires that all plain models and this one are trained."""
        return agree(all(model.is_trained() for model in [*plain_arms(self.models), self.model]))

    def require_searches(self) -> None:
        """Refuse a model that searches by words, or is compared with such a search, if bm25s is not installed."""
        source = self.model.source
        if source == "bm25" or (source in SEARCHES and "scores" in self.models.plan.retrieval.measures):
            require_lexical()


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainArm(OfArm, AbstractFactStage):
    """Trains one model from the initial reader of its seed."""

    kind = "read"
    named = "read {self.model.name}"
    stored = READ

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[TrainArm]":
        """One stage for each model; the plain models of each seed come first."""
        stages = [cls(model=model) for model in arm_models(models)]
        return [replace(stage, needs=tuple(one.key for one in stage._begins_with())) for stage in stages]

    def _begins_with(self) -> list[AbstractStage]:
        model = self.model
        if model.exchanged is not None:
            return [TrainArm(model=model.exchanged)]
        found: list[AbstractStage] = [] if model.warmed is None else [WarmReader(model=model.warmed)]
        if model.warm is not None and self.models.plan.retrieval.warm_updates and model.variant != "cold":
            found.append(WarmRetriever(model=model.warm))
        return found

    @property
    def estimate(self) -> float:
        return relative_cost(self.model) * self.model.config.updates / self.models.plan.training.updates

    def depends(self) -> list[Any]:
        """Includes the name, since two models may have the same weights."""
        return ["read", self.content, self.model.recipe.name]

    @property
    def content(self) -> str:
        return self.model.key

    def is_done(self) -> bool:
        return agree(self.model.is_trained() and is_intact(self.model.weights))

    def check(self) -> None:
        self.require_searches()

    def run(self) -> dict[str, Any]:
        """Finish the training, or repeat it if its weights are damaged."""
        if is_first() and self.model.is_trained() and not is_intact(self.model.weights):
            discard(self.model.weights, self.model.name)
            self.cache.remove(self.stored, self.content)
        wait_for_all()
        return super().run()

    def make(self) -> dict[str, Any]:
        model = self.model
        module, result = model.train(lambda module: arm_recorders(model, module, model.folder))
        chance = model.matter.chance
        found = training_accuracy(module.eval(), model.objective, model.matter.queries, chance)
        if is_first():
            keep_sums(model.weights)
        if not found.learned:
            current_display().note(
                f"{model.name} answers {found.value:.3f} of its training queries, and a guess {chance:.3f}: "
                "it has not learned."
            )
        return {
            "updates": result.updates,
            "learning_rate": model.config.learning_rate,
            "query_tokens": result.source_tokens,
            "targets": result.supervised_tokens,
            "seconds": result.seconds,
            "cpu_seconds": result.cpu_seconds,
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "training_p1": found.value,
            "chance": chance,
            "learned": found.learned,
            "right": found.right.tolist(),
            "asked": found.asked.tolist(),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class SettleArm(OfArm):
    """Publishes the model that counts and makes its tables; it is trained again at half the rate if a plain model of
    the study learned nothing.
    """

    kind = "settle"
    named = "settle {self.model.name}"
    makes = (RETRIEVAL_RUNS, RETRIEVAL_LEARNING, RETRIEVAL_SCORES)

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[SettleArm]":
        """One stage for each model, after all of them are trained."""
        trained = tuple(stage.key for stage in before if isinstance(stage, TrainArm))
        return [cls(model=model, needs=(*trained, *cls._before(model))) for model in arm_models(models)]

    @classmethod
    def _before(cls, model: ArmModel) -> tuple[str, ...]:
        return () if model.exchanged is None else (cls(model=model.exchanged).key,)

    @property
    def estimate(self) -> float:
        """A second training is rarely needed, so it counts only once the first ones are done and show the need."""
        known = all(model.is_trained() for model in plain_arms(self.models))
        again = known and not self.counts.is_trained()
        return TrainArm(model=self.model).estimate if again else 0.001

    def depends(self) -> list[Any]:
        """Includes all plain models, since together they decide which model counts."""
        arms = [one.key for one in plain_arms(self.models)]
        return ["settle", self.model.key, self.model.recipe.name, arms, self.models.plan.retrieval.repeat]

    def is_done(self) -> bool:
        if not self.is_settled():
            return False
        counts = self.counts
        return agree(counts.is_trained() and is_published(counts.weights, counts.published))

    def check(self) -> None:
        if is_first():
            check_target(self.model.weights, self.model.published)

    def run(self) -> dict[str, Any]:
        counts = self.counts
        facts = TrainArm(model=counts).run()
        if is_first():
            check_target(counts.weights, counts.published)
            publish(counts.weights, counts.published, counts.name)
        wait_for_all()
        return facts if counts.halved else {}

    def tables(self) -> Part:
        model, facts = self.counts, self.counts.facts()
        run = {name: value for name, value in facts.items() if name not in _BY_BLOCK}
        scores = RETRIEVAL_SCORES.conform(pd.DataFrame(_scores(facts, self.models.plan.retrieval.read_updates)))
        part = {RETRIEVAL_LEARNING.name: read_table(model.folder / LEARNING).frame, RETRIEVAL_SCORES.name: scores}
        runs = RETRIEVAL_RUNS.conform(pd.DataFrame([{**self.columns(), **run}]))
        return {RETRIEVAL_RUNS.name: runs, **self._with_columns(part)}


def _scores(facts: dict[str, Any], read_updates: int) -> list[dict[str, Any]]:
    """Rows of `retrieval_scores` about the training; `read_updates` only if its reader was pretrained."""
    right, asked = (np.array(facts[name]) for name in _BY_BLOCK)
    p1 = ratio_estimate(right, asked, facts["chance"], scale="share")
    shared = {"system": "own", "queries": "trained", "k": 0}
    values = {"learned": float(facts["learned"])} | ({"read_updates": float(read_updates)} if read_updates else {})
    exact = {name: estimate(one, np.full(len(p1["replicates"]), one), 0.0, 1) for name, one in values.items()}
    return [
        {**shared, "metric": "training_p1", **p1},
        *({**shared, "metric": name, **own} for name, own in exact.items()),
    ]
