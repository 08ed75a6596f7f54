"""Stages over all models of a study: how well models match, examples of objectives, joined tables and verdicts."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from infoflow._subjects import provided
from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.architectures import FAMILIES
from infoflow.findings import FINDINGS, FINDINGS_TABLE, Finding, evaluate
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import digest
from infoflow.objectives import Vocabulary
from infoflow.results import BERT, MATCH, OBJECTIVE_EXAMPLES, Recipe, RunFolder, Spec, TableSchema
from infoflow.training import TrainingData, count_training_flops

from .._plugins import PluginsPlan, own_claims
from .._result_cache import Part, stacked
from .._study_models import StudyModels
from ._stage import AbstractFactStage, AbstractStage, AbstractTableStage, OfRecipe
from ._train import Train

_VERSION = 1  # to be increased when the same plan counts differently
_REFERENCE = "masked-lm"


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchModel(OfRecipe, AbstractFactStage):
    """One model's row of the table `match`; operations and initial weights are those at the start of training."""

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
        # The masked LM with BERT blocks and the initial weights of this seed.
        reference = models.initial(Recipe(objective=Spec(_REFERENCE), architecture=BERT, seed=recipe.seed))
        drawn, matched = matched_weights(measured, reference)
        return {
            "measured_parameters": sum(parameter.numel() for parameter in measured.parameters()),
            "flops": flops.total,
            "flops_error": flops.standard_error,
            "drawn_weights": drawn,
            "matched_weights": matched,
        }


def matched_weights(model: nn.Module, reference: nn.Module) -> tuple[int, int]:
    """How many initial weights of `model` were drawn at random, and how many of these equal the reference bit for bit.

    Tensors are compared as a whole, regardless of their names, since two random tensors never agree by chance in
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Check(AbstractStage):
    """The last stage of a graph; it is cheap and is repeated in every call, because claims may have changed."""

    kind = "check"
    runs_models = False
    folder: RunFolder
    stages: Sequence[AbstractStage]  # stages whose tables form the run's tables
    claims: bool = True
    plugins: PluginsPlan = dataclasses.field(default_factory=PluginsPlan)

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
                write_derived(self.folder, own_claims(self.plugins))
            else:
                _derive(self.folder, judged=True)
                _derive(self.folder, judged=False)
        wait_for_all()
        return {}


def write_tables(folder: RunFolder, stages: Sequence[AbstractStage], alone: bool) -> None:
    """Write the tables of the run: the rows of all stages, concatenated in their order.

    With `alone`, all other tables of the run are removed, since they belong to an earlier plan. Otherwise, only those
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
    """Judge the claims, and make the subjects' tables, both those that claims read and those made from the verdicts."""
    _derive(folder, judged=True)
    folder.tables.write(evaluate(folder.tables, [*FINDINGS.values(), *own]), FINDINGS_TABLE)
    _derive(folder, judged=False)


def _derive(folder: RunFolder, judged: bool) -> None:
    for derived in (derived for own in provided("claims", "DERIVED") for derived in own):
        if derived.judged == judged:
            _replace(folder, derived.schemas, derived.make(folder.tables))


def _replace(folder: RunFolder, schemas: Sequence[TableSchema], found: Mapping[str, pd.DataFrame]) -> None:
    """Write these tables, and remove those of `schemas` that were not found this time."""
    folder.tables.remove(schema.name for schema in schemas)
    for schema in schemas:
        if schema.name in found:
            folder.tables.write(found[schema.name], schema)


_SHOWN = 1  # to be increased when the same plan shows other examples
_LENGTH, _ROWS = 16, 1000  # tokens; rows to choose from


@dataclass(frozen=True, kw_only=True, eq=False)
class ShowExample(OfRecipe, AbstractTableStage):
    """An objective's view of one example from its first epoch, with about 16 tokens that are mostly whole words."""

    kind = "show"
    named = "show {self.recipe.name}"
    stored = "shown"
    makes = (OBJECTIVE_EXAMPLES,)
    guess = 0.01
    runs_models = False

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ShowExample]":
        """One stage per objective, for its first model once it is trained."""
        firsts: dict[str, Recipe] = {}
        for recipe in models.plan.recipes():
            firsts.setdefault(recipe.objective.label, recipe)
        trained = {stage.recipe.name: stage.key for stage in before if isinstance(stage, Train)}
        return [cls(models=models, recipe=recipe, needs=(trained[recipe.name],)) for recipe in firsts.values()]

    def depends(self) -> list[Any]:
        return ["shown", _SHOWN, OBJECTIVE_EXAMPLES.version, self.models.train_key(self.recipe), self.recipe.name]

    def make(self) -> pd.DataFrame:
        objective, data = self.models.objective(self.recipe), self.models.training_data(self.recipe)
        batch = data.batch(objective, np.array([_row(data)]), ("training-noise", self.recipe.seed), epoch=0)
        names = _names(data.tokenizer)
        shown = objective.shown(batch, names, _names(data.target_tokenizer) if objective.needs_translation else names)
        rows = [
            {"part": part, "line": line, "place": index, "token": token}
            for part, lines in (("inputs", shown.inputs), ("targets", shown.targets))
            for line, tokens in lines.items()
            for index, token in enumerate(tokens)
        ]
        return pd.DataFrame(rows, columns=list(OBJECTIVE_EXAMPLES.column_names))


def _row(data: TrainingData) -> int:
    """The row with a length closest to 16 tokens; among several, the first with the fewest word continuations."""
    near = np.argsort(np.abs(data.source.lengths - _LENGTH), kind="stable")[:_ROWS]
    inside = [int((~data.vocabulary.word_starts(data.source.row(row))).sum()) for row in near.tolist()]
    return int(near[np.argmin(inside)])


def _names(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The text of each id, with ## before continuations of words; special tokens have their names."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    inside = np.zeros(vocabulary.size, dtype=bool) if vocabulary.continues is None else vocabulary.continues
    texts = tokenizer.batch_decode([[id] for id in range(vocabulary.size)])
    names = tokenizer.convert_ids_to_tokens(list(range(vocabulary.size)))
    return ["##" * bool(more) + (text.strip() or name) for text, name, more in zip(texts, names, inside, strict=True)]
