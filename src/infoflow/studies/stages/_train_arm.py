"""Train one arm of retrieval: a reader that differs from the others of its seed in which passage it may read.

A run that does not answer even what it was trained on has learned nothing that claims could be judged by. If that
happens to a plain arm, all arms of the study are trained once more, at half the rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import current_display, digest
from infoflow.results import KEYS, Column, Subject, TableSchema, estimate, ratio_estimate, read_table
from infoflow.retrieval import RETRIEVAL_LEARNING, RETRIEVAL_SCORES

from .._arm_recording import arm_recorders
from .._retrieval_arms import LEARNING, READ, ArmModel, arm_models, plain_arms, relative_cost
from .._study_models import StudyModels
from .._training_accuracy import training_accuracy
from .._weights import check_target, discard, is_intact, is_published, keep_sums, publish
from .._workbench import Part
from ._arm_stage import AbstractArmStage
from ._stage import AbstractStage
from ._warm_reader import warm_reader_key
from ._warm_retriever import warm_stage_key

RETRIEVAL_RUNS = TableSchema(
    name="retrieval_runs",
    version=1,
    description="What the training of each reader was, what it cost, and whether it learned.",
    columns=(
        *KEYS,
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps"),
        Column(name="learning_rate", dtype="float64", unit="", description="of the reader, at its peak"),
        Column(name="query_tokens", dtype="int64", unit="tokens", description="of queries, padding excluded"),
        Column(name="targets", dtype="int64", unit="tokens", description="masked tokens that the loss looked at"),
        Column(name="seconds", dtype="float64", unit="s", description="wall time of training"),
        Column(name="cpu_seconds", dtype="float64", unit="s", description="CPU time of the whole training"),
        Column(name="parameters", dtype="int64", unit="", description="of reader and retriever"),
        Column(name="training_p1", dtype="float64", unit="share", description="of training queries answered rightly"),
        Column(name="chance", dtype="float64", unit="share", description="of a guess among the relation's objects"),
        Column(name="learned", dtype="bool", unit="", description="whether it answers .05 more than a guess"),
    ),
)
# Its rows are about updates of their own.
_LEARNING = RETRIEVAL_LEARNING.with_keys(*(key for key in KEYS if key.name != "update"))
_SCHEMAS = (RETRIEVAL_RUNS, _LEARNING, RETRIEVAL_SCORES.with_keys(*KEYS))
_BY_BLOCK = ("right", "asked")  # of the facts of a training


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainArm(AbstractStage):
    """From the first reader of its seed to its weights."""

    kind = "read"
    model: ArmModel

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[TrainArm]":
        """The plain arms of each seed first."""
        return [cls(model=model, needs=_needs(model)) for model in arm_models(models)]

    @property
    def estimate(self) -> float:
        return _estimate(self.model)

    @cached_property
    def key(self) -> str:
        return train_arm_key(self.model)

    @property
    def label(self) -> str:
        return f"read {self.model.name}"

    def is_done(self) -> bool:
        return agree(self.model.is_trained() and is_intact(self.model.weights))

    def run(self) -> dict[str, Any]:
        return trained(self.model)


@dataclass(frozen=True, kw_only=True, eq=False)
class SettleArm(AbstractArmStage):
    """The model of an arm that counts: trained again at half the rate where a plain arm of the study learned nothing;
    published, and in the tables."""

    kind = "settle"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[SettleArm]":
        """One for each arm, behind the training of all."""
        needs = tuple(stage.key for stage in before if isinstance(stage, TrainArm))
        return [cls(model=model, needs=(*needs, *_settled(model))) for model in arm_models(models)]

    @property
    def estimate(self) -> float:
        """A second training is seldom needed, and known to be only where the first ones are done."""
        known = all(model.is_trained() for model in plain_arms(self.model.models))
        again = known and not self.counts.is_trained()
        return _estimate(self.model) if again else 0.001

    @cached_property
    def key(self) -> str:
        return settle_arm_key(self.model)

    @property
    def label(self) -> str:
        return f"settle {self.model.name}"

    def is_done(self) -> bool:
        if not self.is_settled():
            return False
        counts = self.counts
        return agree(counts.is_trained() and is_published(counts.weights, counts.published))

    def run(self) -> dict[str, Any]:
        counts = self.counts
        facts = trained(counts)
        if is_first():
            check_target(counts.weights, counts.published)
            publish(counts.weights, counts.published, counts.name)
        wait_for_all()
        return facts if counts.halved else {}

    def tables(self) -> Part:
        model, facts = self.counts, self.counts.facts()
        keys = Subject(recipe=model.recipe).keys()
        run = {name: value for name, value in facts.items() if name not in _BY_BLOCK}
        scores = RETRIEVAL_SCORES.conform(pd.DataFrame(_scores(facts, model.models.plan.retrieval.read_updates)))
        learning = read_table(model.folder / LEARNING).frame
        return {
            RETRIEVAL_RUNS.name: RETRIEVAL_RUNS.conform(pd.DataFrame([{**keys, **run}])),
            RETRIEVAL_LEARNING.name: learning.assign(**{name: keys[name] for name in keys if name != "update"}),
            RETRIEVAL_SCORES.name: scores.assign(**keys),
        }

    def schemas(self) -> dict[str, TableSchema]:
        return {schema.name: schema for schema in _SCHEMAS}


def trained(model: ArmModel) -> dict[str, Any]:
    """The facts of a training, which is done, or what is missing of it, before."""
    bench = model.models.bench
    if is_first() and model.is_trained() and not is_intact(model.weights):
        discard(model.weights, model.name)
        bench.remove(READ, model.key)
    wait_for_all()
    return bench.facts(READ, model.key, lambda: _train(model))


def train_arm_key(model: ArmModel) -> str:
    """Key of the stage: two arms may come to the same weights."""
    return digest(["read", model.key, model.recipe.name])


def settle_arm_key(model: ArmModel) -> str:
    """Key of the stage that says which model of an arm counts: it depends on all arms."""
    arms = [one.key for one in plain_arms(model.models)]
    return digest(["settle", model.key, model.recipe.name, arms, model.models.plan.retrieval.repeat])


def _estimate(model: ArmModel) -> float:
    """Of a training, in trainings of the study's models."""
    return relative_cost(model) * model.config.updates / model.models.plan.training.updates


def _train(model: ArmModel) -> dict[str, Any]:
    module, result = model.train(lambda module: arm_recorders(model, module, model.folder))
    chance = model.matter.chance
    found = training_accuracy(module.eval(), model.objective, model.matter.queries, chance)
    if is_first():
        keep_sums(model.weights)
    if not found.learned:
        current_display().note(
            f"{model.name} answers {found.value:.3f} of its training queries, a guess {chance:.3f}: it has not learned."
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


def _scores(facts: dict[str, Any], read_updates: int) -> list[dict[str, Any]]:
    """Rows of `retrieval_scores` about the training; `read_updates` only where its reader came able to read."""
    right, asked = (np.array(facts[name]) for name in _BY_BLOCK)
    p1 = ratio_estimate(right, asked, facts["chance"], scale="share")
    shared = {"system": "own", "queries": "trained", "k": 0}
    told = {"learned": float(facts["learned"])} | ({"read_updates": float(read_updates)} if read_updates else {})
    exact = {name: estimate(one, np.full(len(p1["replicates"]), one), 0.0, 1) for name, one in told.items()}
    return [
        {**shared, "metric": "training_p1", **p1},
        *({**shared, "metric": name, **own} for name, own in exact.items()),
    ]


def _needs(model: ArmModel) -> tuple[str, ...]:
    """Keys of the stages that its beginning comes from."""
    if model.exchanged is not None:
        return (train_arm_key(model.exchanged),)
    warm = model.warm if model.models.plan.retrieval.warm_updates and model.variant != "cold" else None
    reader = () if model.warmed is None else (warm_reader_key(model.warmed),)
    return reader if warm is None else (*reader, warm_stage_key(warm))


def _settled(model: ArmModel) -> tuple[str, ...]:
    return () if model.exchanged is None else (settle_arm_key(model.exchanged),)
