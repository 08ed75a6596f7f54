"""What each model of a study had in common with the others: parameters, operations, updates, tokens, first weights."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from torch import Tensor, nn

from infoflow.architectures import FAMILIES
from infoflow.flow import agree
from infoflow.foundation import digest
from infoflow.results import BERT, KEYS, Column, Recipe, Spec, Subject, TableSchema
from infoflow.training import count_training_flops

from .._study_models import TRAINED, StudyModels
from .._workbench import Part
from ._stage import AbstractStage
from ._train import Train

_COUNTED = "matched"
_VERSION = 1  # raise when the same plan counts otherwise
_REFERENCE = "masked-lm"

MATCH = TableSchema(
    name="match",
    version=1,
    description="What a comparison of models holds fixed and what it does not, side by side.",
    columns=(
        *KEYS,
        Column(name="parameters", dtype="int64", unit="", description="of all that was trained or taught it"),
        Column(name="measured_parameters", dtype="int64", unit="", description="of the part that is measured"),
        Column(
            name="flops",
            dtype="float64",
            unit="operations",
            description="of the whole training, forward and backward: matrix products and attention, counted on the "
            "training's own batches (`count_training_flops`)",
        ),
        Column(
            name="flops_error",
            dtype="float64",
            unit="operations",
            description="standard error of flops, which are counted on some of the updates",
        ),
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="read by the stack that reads the text"),
        Column(name="target_tokens", dtype="int64", unit="tokens", description="read by a decoder beside an encoder"),
        Column(name="supervised_tokens", dtype="int64", unit="tokens", description="that the loss looked at"),
        Column(
            name="drawn_weights",
            dtype="int64",
            unit="",
            description="random first weights of the measured part; biases, norms and what starts equal are left out",
        ),
        Column(
            name="matched_weights",
            dtype="int64",
            unit="",
            description="of these, equal bit for bit to the first weights of a masked LM of BERT's blocks of the seed",
        ),
        Column(name="initialisation", dtype="string", unit="", description="whether first weights match, and why"),
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchModel(AbstractStage):
    """One model's row: operations are counted and first weights compared on what training began from."""

    kind = "match"
    models: StudyModels
    recipe: Recipe

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MatchModel]":
        trained = [stage for stage in before if isinstance(stage, Train)]
        return [cls(models=models, recipe=stage.recipe, needs=(stage.key,)) for stage in trained]

    @property
    def estimate(self) -> float:
        return 0.02

    @cached_property
    def key(self) -> str:
        return digest(["match", _VERSION, self.models.train_key(self.recipe), self.recipe.name])

    @property
    def label(self) -> str:
        return f"match {self.recipe.name}"

    def is_done(self) -> bool:
        return agree(self.models.bench.done(_COUNTED, self._part))

    def run(self) -> dict[str, Any]:
        return self.models.bench.facts(_COUNTED, self._part, self._count)

    def tables(self) -> Part:
        trained = self.models.bench.read_facts(TRAINED, self.models.train_key(self.recipe))
        counted = self.models.bench.read_facts(_COUNTED, self._part)
        known = {**trained, **counted, "initialisation": _told(self.models, self.recipe, counted)}
        row = {**Subject(recipe=self.recipe).keys(), **known}
        return {MATCH.name: pd.DataFrame([{name: row[name] for name in MATCH.column_names}])}

    def schemas(self) -> dict[str, TableSchema]:
        return {MATCH.name: MATCH}

    @property
    def _part(self) -> str:
        return digest([_VERSION, self.models.train_key(self.recipe)])

    def _count(self) -> dict[str, Any]:
        models, recipe = self.models, self.recipe
        objective, module = models.objective(recipe), models.initial(recipe)
        config = dataclasses.replace(models.plan.training, seed=recipe.seed)
        flops = count_training_flops(objective, config, models.training_data(recipe), module)
        measured = objective.exported(module)
        drawn, matched = matched_weights(measured, _reference(models, recipe.seed))
        return {
            "measured_parameters": sum(parameter.numel() for parameter in measured.parameters()),
            "flops": flops.total,
            "flops_error": flops.standard_error,
            "drawn_weights": drawn,
            "matched_weights": matched,
        }


def matched_weights(model: nn.Module, reference: nn.Module) -> tuple[int, int]:
    """How many first weights of `model` were drawn, and how many of these the reference has, bit for bit.

    A tensor is compared as a whole, whatever its name: that two drawn tensors agree by chance is out of the question.
    """
    known = {_bits(parameter) for parameter in reference.parameters() if _is_drawn(parameter)}
    drawn = [parameter for parameter in model.parameters() if _is_drawn(parameter)]
    return sum(p.numel() for p in drawn), sum(p.numel() for p in drawn if _bits(p) in known)


def _is_drawn(parameter: Tensor) -> bool:
    flat = parameter.detach().flatten()
    return bool((flat != flat[0]).any())


def _bits(parameter: Tensor) -> tuple[tuple[int, ...], bytes]:
    return tuple(parameter.shape), parameter.detach().cpu().numpy().tobytes()


def _reference(models: StudyModels, seed: int) -> nn.Module:
    """The masked LM of BERT's blocks that this seed would begin with."""
    return models.initial(Recipe(objective=Spec(_REFERENCE), architecture=BERT, seed=seed))


def _told(models: StudyModels, recipe: Recipe, counted: dict[str, Any]) -> str:
    drawn, matched = counted["drawn_weights"], counted["matched_weights"]
    if models.teacher(recipe) is not None:
        return f"its teacher's: embeddings, head and every other layer of {models.teacher(recipe).name}, as trained"
    if matched == 0:
        return f"its own: {FAMILIES[recipe.architecture.name].differs or 'no tensor is of a shape that others have'}"
    share = f"{matched:,} of {drawn:,} random weights are the masked LM's, bit for bit"
    if matched == drawn:
        return f"matched: {share}"
    return f"matched on the side that reads the text: {share}; the others have no counterpart"
