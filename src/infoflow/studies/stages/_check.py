"""Stages over all models of a study: how well they are matched, their joined tables, and the verdicts."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor, nn

from infoflow._subjects import provided
from infoflow.architectures import FAMILIES
from infoflow.findings import FINDINGS, FINDINGS_TABLE, Finding, evaluate
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import digest
from infoflow.results import BERT, MATCH, Recipe, RunFolder, Spec, TableSchema
from infoflow.training import count_training_flops

from .._study_models import StudyModels
from .._workbench import Part, stacked
from ._stage import AbstractFactStage, AbstractStage, OfRecipe
from ._train import Train

# How well the models of a study are matched: parameters, operations, updates, tokens, initial weights.


_VERSION = 1  # increase when the same plan counts differently
_REFERENCE = "masked-lm"


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchModel(OfRecipe, AbstractFactStage):
    """One model's row; operations and initial weights are those at the start of training."""

    kind = "match"
    named = "match {self.recipe.name}"
    stored = "matched"
    makes = (MATCH,)
    guess = 0.02

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MatchModel]":
        trained = [stage for stage in before if isinstance(stage, Train)]
        return [cls(models=models, recipe=stage.recipe, needs=(stage.key,)) for stage in trained]

    def depends(self) -> list[Any]:
        return ["match", _VERSION, self.models.train_key(self.recipe), self.recipe.name]

    @property
    def content(self) -> str:
        return digest([_VERSION, self.models.train_key(self.recipe)])

    def tables(self) -> Part:
        trained, counted = Train(models=self.models, recipe=self.recipe).facts(), self.facts()
        known = {**trained, **counted, "initialisation": _initialisation(self.models, self.recipe, counted)}
        row = {**self.columns(), **known}
        return {MATCH.name: pd.DataFrame([{name: row[name] for name in MATCH.column_names}])}

    def make(self) -> dict[str, Any]:
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
    """How many initial weights of `model` were drawn, and how many of these occur bit for bit in the reference.

    Tensors are compared as a whole, regardless of name: chance agreement of two drawn tensors is impossible in
    practice.
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
    """The masked LM with BERT blocks that this seed would start with."""
    return models.initial(Recipe(objective=Spec(_REFERENCE), architecture=BERT, seed=seed))


def _initialisation(models: StudyModels, recipe: Recipe, counted: dict[str, Any]) -> str:
    drawn, matched = counted["drawn_weights"], counted["matched_weights"]
    if models.teacher(recipe) is not None:
        return f"its teacher's: embeddings, head and every other layer of {models.teacher(recipe).name}, as trained"
    if matched == 0:
        return f"its own: {FAMILIES[recipe.architecture.name].differs or 'no tensor is of a shape that others have'}"
    share = f"{matched:,} of {drawn:,} random weights are the masked LM's, bit for bit"
    if matched == drawn:
        return f"matched: {share}"
    return f"matched on the side that reads the text: {share}; the others have no counterpart"


# Combine the tables of all stages, and judge the published claims on them.


@dataclass(frozen=True, kw_only=True, eq=False)
class Check(AbstractStage):
    """The last stage of a graph: cheap, and repeated in every call, since claims may have changed."""

    kind = "check"
    runs_models = False
    folder: RunFolder
    stages: Sequence[AbstractStage]  # stages whose tables form the run's tables
    claims: bool = True

    def depends(self) -> list[Any]:
        return ["check", [stage.key for stage in self.stages]]

    @property
    def label(self) -> str:
        return "check findings" if self.claims else "write tables"

    def is_done(self) -> bool:
        return False

    def run(self) -> dict[str, Any]:
        if is_first():
            write_tables(self.folder, self.stages, alone=self.claims)
            if self.claims:
                write_derived(self.folder)
        wait_for_all()
        return {}


def write_tables(folder: RunFolder, stages: Sequence[AbstractStage], alone: bool) -> None:
    """Write the tables of the run: the rows of all stages, concatenated in their order.

    `alone`: other tables that infoflow wrote there belong to an earlier plan and are removed. Otherwise only those
    tables are removed that these stages would have written if no measure had failed.
    """
    schemas: dict[str, TableSchema] = {}
    for stage in stages:
        schemas |= stage.schemas()
    tables = stacked(stage.tables() for stage in stages)
    if alone:
        folder.tables.clear()
    folder.tables.remove({failure.table for stage in stages for failure in stage.failures()} - tables.keys())
    for name, frame in tables.items():
        folder.tables.write(frame, schemas[name])


def write_derived(folder: RunFolder, own: Sequence[Finding] = ()) -> None:
    """Judge every claim and the user's `own` on the run's tables; make the tables that follow."""
    _derive(folder, judged=True)
    folder.tables.write(evaluate(folder.tables, [*FINDINGS.values(), *own]), FINDINGS_TABLE)
    _derive(folder, judged=False)


def _derive(folder: RunFolder, judged: bool) -> None:
    """Make the subjects' tables from the run's tables: those that claims read, or those that follow the verdicts."""
    for derived in (derived for own in provided("claims", "DERIVED") for derived in own):
        if derived.judged == judged:
            _replace(folder, derived.schemas, derived.make(folder.tables))


def _replace(folder: RunFolder, schemas: Sequence[TableSchema], found: Mapping[str, pd.DataFrame]) -> None:
    """Write these tables, and remove those of `schemas` that were not found this time."""
    folder.tables.remove(schema.name for schema in schemas)
    for schema in schemas:
        if schema.name in found:
            folder.tables.write(found[schema.name], schema)
