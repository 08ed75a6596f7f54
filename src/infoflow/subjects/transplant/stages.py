"""Train fresh models with transplanted heads of a trained one: the choice of heads, and the learning curves."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import is_first, measure, wait_for_all
from infoflow.foundation import current_display, digest
from infoflow.heads import (
    TRANSPLANT_CURVES,
    TRANSPLANTED_HEADS,
    VARIANTS,
    Head,
    HeadScore,
    all_heads,
    by_chance,
    drawn_heads,
    head_roles,
    head_slices,
    importance,
    shuffled_heads,
    specialised_heads,
    transplant,
)
from infoflow.models import Model, load_model
from infoflow.results import UNTRAINED, Recipe, Subject, estimate
from infoflow.studies._data import at_most
from infoflow.studies._plan import StudyPlan
from infoflow.studies._result_cache import Part
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractFactStage, AbstractStage, AbstractTableStage, OfRecipe
from infoflow.studies.stages._train import Train, pass_options, training_estimate
from infoflow.subjects.pruning.measures import ALL_HEADS, quality, role_measures
from infoflow.subjects.pruning.stages._pruning_points import derived_seed
from infoflow.training import SNAPSHOTS, SnapshotPlan, Snapshots, TrainingHook, frozen_slices

_HEAD = ["stack", "kind", "layer", "head"]
NONE, SPECIALISED, RANDOM, SHUFFLED = VARIANTS

_VERSION = 1  # increase when the same plan trains or scores other fresh models


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One fresh model of a seed."""

    name: str  # one of `VARIANTS`
    frozen: bool
    draw: int = 0

    def __str__(self) -> str:
        draw = f" {self.draw}" if self.name == RANDOM else ""
        return f"{self.name}{draw}{', frozen' if self.frozen else ''}"

    @property
    def needs_heads(self) -> bool:
        """Whether it needs heads of the donor; the unchanged fresh model does not."""
        return self.name != NONE or self.frozen


def variants(plan: StudyPlan) -> list[Variant]:
    """The variants that the plan requests for every model."""
    found = list[Variant]()
    for frozen in plan.transplant.frozen:
        for name in VARIANTS:
            draws = plan.transplant.random_draws if name == RANDOM else 1
            found += [Variant(name=name, frozen=frozen, draw=draw) for draw in range(draws)]
    return found


def fresh_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the fresh model for a trained model's seed, shared by all its variants.

    Initial weights, batch order, noise and dropout use another seed, at least 2³¹, which is derived from the trained
    model's seed alone.
    """
    return replace(recipe, seed=derived_seed("fresh-model", recipe.seed))


def specialised(plan: StudyPlan, scores: Sequence[HeadScore]) -> list[Head]:
    """The donor's heads to transplant, best first."""
    section = plan.transplant
    return specialised_heads(scores, section.num_heads(len(scores)), section.choose)


def heads_of(plan: StudyPlan, recipe: Recipe, scores: Sequence[HeadScore], variant: Variant) -> list[Head]:
    """The heads of a variant, in the donor and in the fresh model."""
    chosen = specialised(plan, scores)
    if variant.name == RANDOM:
        return drawn_heads([one.head for one in scores], chosen, variant.draw, recipe.seed)
    return chosen if variant.needs_heads else []


@dataclass(frozen=True, kw_only=True, eq=False)
class ChooseHeads(OfRecipe, AbstractFactStage):
    """Importance and roles of a trained model's heads on validation sentences, and the model's own scores."""

    kind = "choose"
    named = "choose heads of {self.recipe.name}"
    stored = "transplant-scores"
    makes = (TRANSPLANTED_HEADS,)
    guess = 0.2

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ChooseHeads]":
        """One stage for each model whose heads the plan transplants."""
        section = models.plan.transplant
        recipes = models.plan.recipes(section.objectives) if section.on else []
        return [
            cls(models=models, recipe=recipe, needs=(Train(models=models, recipe=recipe).key,)) for recipe in recipes
        ]

    def depends(self) -> list[Any]:
        return ["choose", self.recipe.name, self.content, self.models.plan.transplant]

    @property
    def content(self) -> str:
        """Key of the scores of the donor and of its heads."""
        section, analysis = self.models.plan.transplant, self.models.plan.analysis
        ranked_on = [
            section.scope,
            section.rank_sentences,
            section.role_sentences if "roles" in section.choose else None,
        ]
        scored_on = [section.metric, section.score_sentences, analysis.sentences, analysis.beams]
        return digest([_VERSION, "scores", self.models.train_key(self.recipe), ranked_on, scored_on])

    def run(self) -> dict[str, Any]:
        super().run()
        self._tell(specialised(self.models.plan, self.head_scores()))
        return {}

    def head_scores(self) -> list[HeadScore]:
        """The heads of the scope with their scores, once the stage is done."""
        return [
            HeadScore(head=(str(stack), str(kind), int(layer), int(head)), importance=worth, roles=tuple(roles))
            for stack, kind, layer, head, worth, roles in self.facts()["heads"]
        ]

    def metrics(self) -> list[str]:
        """Metrics of fresh models; before the end, only the loss."""
        translates = self.models.objective(self.recipe).needs_translation
        return ["loss", "bleu"] if translates and self.models.plan.transplant.metric == "bleu" else ["loss"]

    def tables(self) -> Part:
        """The heads of every draw."""
        scores = self.head_scores()
        by_head = {one.head: one for one in scores}
        rows = []
        for variant in [Variant(name=SPECIALISED, frozen=False), *_draws(self.models)]:
            for rank, head in enumerate(heads_of(self.models.plan, self.recipe, scores, variant)):
                own = by_head[head]
                facts = {"roles": ", ".join(own.roles), "importance": own.importance, "rank": rank}
                rows.append({"arm": variant.name, "draw": variant.draw, **dict(zip(_HEAD, head, strict=True)), **facts})
        chance = self.facts().get("by_chance")
        frame = pd.DataFrame(rows, columns=TRANSPLANTED_HEADS.column_names)
        frame = TRANSPLANTED_HEADS.conform(frame.assign(by_chance=float("nan") if chance is None else chance))
        return self._with_columns({TRANSPLANTED_HEADS.name: frame})

    def make(self) -> dict[str, Any]:
        """Compute importance and roles of each head in the scope, and the model's own scores, as plain values."""
        models, recipe, section = self.models, self.recipe, self.models.plan.transplant
        model, options = models.load(Subject(recipe=recipe)), pass_options(models, recipe)
        current_display().note(f"Scoring the heads of {recipe.name}.")
        validation = models.data.validation
        table = importance(model, at_most(validation, section.rank_sentences), normalise="layer", options=options)
        worth = {_head(row): float(row["value"]) for row in table.to_dict("records")}
        by_roles = "roles" in section.choose
        roles, chance = self._roles(model, at_most(validation, section.role_sentences)) if by_roles else ({}, None)
        heads = [head for head in all_heads(model.anatomy) if section.scope in (ALL_HEADS, f"{head[0]}-{head[1]}")]
        held_out, beams = at_most(models.data.analysed, section.score_sentences), models.plan.analysis.beams
        scores = {
            metric: float(quality(model, held_out, frozenset(), metric, beams=beams, options=options)["scores"][0])
            for metric in self.metrics()
        }
        return {
            "heads": [[*head, worth[head], roles.get(head, [])] for head in heads],
            "scores": scores,
            "by_chance": chance,
        }

    def _roles(self, model: Model, sentences: Corpus) -> tuple[dict[Head, list[str]], float]:
        """The roles of each head, and the maximum share of heads that hold one by chance."""
        options = pass_options(self.models, self.recipe)
        found = head_roles(measure(model, sentences, role_measures(), options, self.models.data.train))
        held: dict[Head, list[str]] = {}
        for row in found[found["holds"]].to_dict("records"):
            held.setdefault(_head(row), []).append(str(row["role"]))
        chance, num = by_chance(found), sum(map(len, held.values()))
        current_display().note(f"Its heads have {num:,} roles, at most {chance:.1f} of them by chance.")
        return held, chance

    def _tell(self, chosen: list[Head]) -> None:
        """Warn if fewer heads have a role than the plan requests."""
        section = self.models.plan.transplant
        wanted = section.num_heads(len(self.head_scores()))
        if len(chosen) < wanted:
            current_display().warn(
                f"{self.recipe.name}: {len(chosen)} of its heads in {section.scope} have a role, fewer than the "
                f"{wanted} requested: {'only these' if chosen else 'none'} are transplanted. "
                'Add "importance" to transplant.choose for more.'
            )


def _draws(models: StudyModels) -> list[Variant]:
    """The random draws, each once: frozen or not, they have the same heads."""
    found = {variant.draw: variant for variant in variants(models.plan) if variant.name == RANDOM}
    return list(found.values())


def _head(row: dict[Any, Any]) -> Head:
    return str(row["stack"]), str(row["kind"]), int(row["layer"]), int(row["head"])


# Train fresh models with transplanted heads of a trained one, and compute their learning curves.
#
# Each variant is a stage with the same initial weights and the same batches in the same order, but other heads. Its
# weights are kept at the steps of the curve until these are scored.


@dataclass(frozen=True, kw_only=True, eq=False)
class Transplant(OfRecipe, AbstractTableStage):
    """One variant for one trained model: a fresh model from initial weights to the end of its learning curve."""

    kind = "transplant"
    named = "transplant {self.recipe.name}, {self.variant}"
    stored = "transplanted"
    makes = (TRANSPLANT_CURVES,)
    variant: Variant

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Transplant]":
        """Every variant for each model whose heads the plan transplants."""
        section = models.plan.transplant
        return [
            cls(models=models, recipe=recipe, variant=variant, needs=(ChooseHeads(models=models, recipe=recipe).key,))
            for recipe in (models.plan.recipes(section.objectives) if section.on else [])
            for variant in variants(models.plan)
        ]

    @property
    def estimate(self) -> float:
        training = self.models.plan.training
        share = self.models.plan.transplant.num_updates(training) / training.updates
        return training_estimate(self.recipe) * share + 0.02 * len(self._steps)

    def depends(self) -> list[Any]:
        return ["transplant", self.recipe.name, self.content]

    @cached_property
    def content(self) -> str:
        """Key of the learning curve."""
        schedule = self.models.plan.transplant.schedule
        parts = [self._training_key, str(self.variant), self._choice.content, schedule]
        return digest([_VERSION, TRANSPLANT_CURVES.version, parts])

    @property
    def _training_key(self) -> str:
        """Key of the fresh model's weights, regardless of which updates are kept."""
        models, section, variant = self.models, self.models.plan.transplant, self.variant
        settings: list[object] = [section.num_updates(models.plan.training)]
        if variant.needs_heads:
            chosen = [section.scope, section.heads, section.choose, section.rank_sentences, section.role_sentences]
            settings += [models.train_key(self.recipe), chosen, variant.name, variant.frozen, variant.draw]
        return digest([_VERSION, "training", models.train_key(fresh_recipe(self.recipe)), settings])

    def run(self) -> dict[str, Any]:
        super().run()
        if is_first():
            shutil.rmtree(self._folder, ignore_errors=True)
        wait_for_all()
        return {}

    @property
    def _choice(self) -> ChooseHeads:
        return ChooseHeads(models=self.models, recipe=self.recipe)

    @cached_property
    def _steps(self) -> list[int]:
        return self.models.plan.transplant.steps(self.models.plan.training)

    @property
    def _folder(self) -> Path:
        return self.cache.path("transplanting", self._training_key)

    @cached_property
    def _heads(self) -> list[Head]:
        return heads_of(self.models.plan, self.recipe, self._choice.head_scores(), self.variant)

    # -- the curve ----------------------------------------------------------------------------------------------------

    def make(self) -> pd.DataFrame:
        """Train, then score every kept step; no rows if the trained model has no heads to transplant."""
        if self.variant.needs_heads and not self._heads:
            return TRANSPLANT_CURVES.conform(pd.DataFrame(columns=TRANSPLANT_CURVES.column_names))
        kept = Snapshots(self._folder / SNAPSHOTS)
        if is_first() and (self._folder / "model").exists() and not set(self._steps) <= set(kept.kept()):
            shutil.rmtree(self._folder)  # the training finished with other steps, or is damaged
        wait_for_all()
        self._train()
        rows = [row for step in self._steps for row in self._points(kept, step)]
        self._tell(rows)
        return TRANSPLANT_CURVES.conform(pd.DataFrame(rows, columns=TRANSPLANT_CURVES.column_names))

    def _points(self, kept: Snapshots, step: int) -> Iterator[dict[str, Any]]:
        """The rows of one update."""
        models, full = self.models, self._choice.facts()["scores"]
        loaded = load_model(kept.path(step), device=models.plan.training.device)
        model = models.named(loaded, self.recipe, str(self.variant))
        options, beams = pass_options(models, self.recipe), models.plan.analysis.beams
        for metric in self._choice.metrics() if step == self._steps[-1] else ["loss"]:
            found = quality(model, self._held_out, frozenset(), metric, beams=beams, options=options)
            yield {
                "arm": self.variant.name,
                "frozen": self.variant.frozen,
                "draw": self.variant.draw,
                "step": step,
                "source_tokens": kept.entries()[step].source_tokens,
                "heads": len(self._heads),
                "metric": metric,
                **estimate(float(found["scores"][0]), found["scores"][1:], full[metric], found["count"]),
                "signature": found["signature"],
            }

    @cached_property
    def _held_out(self) -> Corpus:
        return at_most(self.models.data.analysed, self.models.plan.transplant.score_sentences)

    def _tell(self, rows: Sequence[dict[str, Any]]) -> None:
        last = [row for row in rows if row["step"] == self._steps[-1]]
        scores = ", ".join(f"{row['metric']} {row['value']:.3g} (donor {row['baseline']:.3g})" for row in last)
        current_display().note(
            f"{len(self._heads)} heads transplanted or frozen: {scores} after {self._steps[-1]:,} updates"
        )

    # -- the training -------------------------------------------------------------------------------------------------

    def _train(self) -> None:
        plan, fresh = self.models.plan, fresh_recipe(self.recipe)
        model = self._placed(self.models.load(Subject(recipe=fresh, update=UNTRAINED)))
        with self._hooks(model) as hooks:
            self.models.train_into(
                fresh,
                self._folder,
                hooks,
                model.module,
                snapshots=SnapshotPlan(steps=lambda config: self._steps),
                updates=plan.transplant.num_updates(plan.training),
                max_source_tokens=None,
                evaluate_every=0,
                save_every=plan.transplant.save_every,
                keep_last=1,
            )

    def _placed(self, fresh: Model) -> Model:
        """The fresh model with the variant's heads in place of its own."""
        if self.variant.name == NONE:
            return fresh
        donor = self.models.load(Subject(recipe=self.recipe))
        if self.variant.name == SHUFFLED:
            donor = shuffled_heads(donor, self._heads, self.recipe.seed)
        return transplant(donor, fresh, {head: head for head in self._heads})

    @contextmanager
    def _hooks(self, model: Model) -> Iterator[list[TrainingHook]]:
        if not self.variant.frozen:
            yield []
            return
        with frozen_slices(model.module, head_slices(model, self._heads)) as hook:
            yield [hook]


STAGES = ((30, ChooseHeads), (40, Transplant))
