"""Score the heads of a trained model: which of them are put into fresh models."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import agree, measure
from infoflow.foundation import current_display, digest
from infoflow.heads import TRANSPLANTED_HEADS, Head, HeadScore, all_heads, head_roles, importance
from infoflow.models import Model
from infoflow.pruning import ALL_HEADS, quality, role_measures
from infoflow.results import KEYS, Recipe, Subject, TableSchema

from .._data import at_most
from .._study_models import StudyModels
from .._workbench import Part
from ._pruning_points import pass_options
from ._stage import AbstractStage
from ._train import train_stage_key
from ._transplant_arms import RANDOM, SPECIALISED, Arm, arms, heads_of, scores_key, specialised

_SCORED = "transplant-scores"
_HEAD = ["stack", "kind", "layer", "head"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChooseHeads(AbstractStage):
    """Importance and roles of a trained model's heads, on validation sentences; and how good that model is."""

    kind = "choose"
    models: StudyModels
    recipe: Recipe

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ChooseHeads]":
        """One for each model whose heads the plan puts into fresh ones."""
        asked = models.plan.transplant
        recipes = models.plan.recipes(asked.objectives) if asked.on else []
        return [cls(models=models, recipe=recipe, needs=(train_stage_key(models, recipe),)) for recipe in recipes]

    @property
    def estimate(self) -> float:
        return 0.2

    @cached_property
    def key(self) -> str:
        return choice_stage_key(self.models, self.recipe)

    @property
    def label(self) -> str:
        return f"choose heads of {self.recipe.name}"

    def is_done(self) -> bool:
        return agree(self.models.bench.done(_SCORED, scores_key(self.models, self.recipe)))

    def run(self) -> dict[str, Any]:
        self.models.bench.facts(_SCORED, scores_key(self.models, self.recipe), self._scored)
        self._tell(specialised(self.models.plan, head_scores(self.models, self.recipe)))
        return {}

    def tables(self) -> Part:
        """The heads of every draw."""
        scores = head_scores(self.models, self.recipe)
        by_head = {one.head: one for one in scores}
        rows = []
        for arm in [Arm(name=SPECIALISED, frozen=False), *_draws(self.models)]:
            for rank, head in enumerate(heads_of(self.models.plan, self.recipe, scores, arm)):
                own = by_head[head]
                told = {"roles": ", ".join(own.roles), "importance": own.importance, "rank": rank}
                rows.append({"arm": arm.name, "draw": arm.draw, **dict(zip(_HEAD, head, strict=True)), **told})
        frame = TRANSPLANTED_HEADS.conform(pd.DataFrame(rows, columns=TRANSPLANTED_HEADS.column_names))
        return {TRANSPLANTED_HEADS.name: frame.assign(**Subject(recipe=self.recipe).keys())}

    def schemas(self) -> dict[str, TableSchema]:
        return {TRANSPLANTED_HEADS.name: TRANSPLANTED_HEADS.with_keys(*KEYS)}

    def _scored(self) -> dict[str, Any]:
        """As plain values: each head of the scope with its importance and roles, and the model's own scores."""
        models, recipe, asked = self.models, self.recipe, self.models.plan.transplant
        model, options = models.load(Subject(recipe=recipe)), pass_options(models, recipe)
        current_display().note(f"Scoring the heads of {recipe.name}.")
        validation = models.data.validation
        table = importance(model, at_most(validation, asked.rank_sentences), normalise="layer", options=options)
        worth = {_head(row): float(row["value"]) for row in table.to_dict("records")}
        roles = self._roles(model, at_most(validation, asked.role_sentences)) if "roles" in asked.choose else {}
        heads = [head for head in all_heads(model.anatomy) if asked.scope in (ALL_HEADS, f"{head[0]}-{head[1]}")]
        held_out, beams = at_most(models.data.analysed, asked.score_sentences), models.plan.analysis.beams
        scores = {
            metric: float(quality(model, held_out, frozenset(), metric, beams=beams, options=options)["scores"][0])
            for metric in metrics(models, recipe)
        }
        return {"heads": [[*head, worth[head], roles.get(head, [])] for head in heads], "scores": scores}

    def _roles(self, model: Model, sentences: Corpus) -> dict[Head, list[str]]:
        options = pass_options(self.models, self.recipe)
        found = head_roles(measure(model, sentences, role_measures(), options, self.models.data.train))
        held: dict[Head, list[str]] = {}
        for row in found[found["holds"]].to_dict("records"):
            held.setdefault(_head(row), []).append(str(row["role"]))
        return held

    def _tell(self, chosen: list[Head]) -> None:
        """Say so where the plan asks for more heads than there are of the kind."""
        asked = self.models.plan.transplant
        wanted = asked.num_heads(len(head_scores(self.models, self.recipe)))
        if len(chosen) < wanted:
            current_display().warn(
                f"{self.recipe.name}: {len(chosen)} of its heads in {asked.scope} have a role, fewer than the {wanted} "
                f"that were asked for: {'these' if chosen else 'none'} are put into fresh models. "
                'Add "importance" to transplant.choose to fill up.'
            )


def choice_stage_key(models: StudyModels, recipe: Recipe) -> str:
    """Key of the stage; the scores have a key of their own."""
    return digest(["choose", recipe.name, scores_key(models, recipe), models.plan.transplant])


def head_scores(models: StudyModels, recipe: Recipe) -> list[HeadScore]:
    """What a finished `ChooseHeads` left."""
    facts = models.bench.read_facts(_SCORED, scores_key(models, recipe))
    return [
        HeadScore(head=(str(stack), str(kind), int(layer), int(head)), importance=worth, roles=tuple(roles))
        for stack, kind, layer, head, worth, roles in facts["heads"]
    ]


def donor_scores(models: StudyModels, recipe: Recipe) -> dict[str, float]:
    """The trained model's own scores by metric, of a finished `ChooseHeads`."""
    return models.bench.read_facts(_SCORED, scores_key(models, recipe))["scores"]


def metrics(models: StudyModels, recipe: Recipe) -> list[str]:
    """What fresh models are scored by; the loss alone before the end."""
    translates = models.objective(recipe).needs_translation
    return ["loss", "bleu"] if translates and models.plan.transplant.metric == "bleu" else ["loss"]


def _draws(models: StudyModels) -> list[Arm]:
    """The random draws, each once: frozen or not, the heads are the same."""
    found = {arm.draw: arm for arm in arms(models.plan) if arm.name == RANDOM}
    return list(found.values())


def _head(row: dict[Any, Any]) -> Head:
    return str(row["stack"]), str(row["kind"]), int(row["layer"]), int(row["head"])
