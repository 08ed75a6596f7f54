"""Measure the models of a study, trained and untrained, and compare them in pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, TypeVar

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, PairMeasure, compare_samples, describe_measure
from infoflow.foundation import current_display, digest
from infoflow.heads import ABLATION_TRANSFER, Ablation, ablation_transfer
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.representations import MutualInformation
from infoflow.results import TASK_SCORES, Recipe, Subject, pair_values

from .._data import StudyData
from .._measures import measures_by_table, pair_measures, requested_measures, standard_measures
from .._parts import at_most, distinct
from .._plan import StudyPlan
from .._plan_sections import AnalysisPlan
from .._plugins import own_measures
from .._result_cache import Computed, Part, ResultCache, Schemas
from .._scores import bleu_scores, content_ids_of, rouge_scores
from .._study_models import StudyModels
from ._measure import AbstractMeasureStage, AbstractScoredMeasure, AbstractStudyMeasure, described
from ._stage import AbstractStage, AbstractTableStage, firsts
from ._train import Train

Pair = tuple[Subject, Subject]
StudyStage = TypeVar("StudyStage", bound=AbstractStudyMeasure)
STATIC = "static"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureModel(AbstractScoredMeasure):
    """Scores and measures a model of a study, trained or not, on sentences on which no model was trained."""

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureModel]":
        subjects = measured_subjects(models, [stage.recipe for stage in before if isinstance(stage, Train)])
        parts: dict[Subject, list[str]] = {subject: [] for subject in subjects}
        for first, second in model_pairs(models.plan, subjects):
            part = pair_key(models, first, second)
            parts[first].append(part)
            parts[second].append(part)
        stages = [cls(models=models, subject=subject, compared_in=tuple(parts[subject])) for subject in subjects]
        return behind_each_other(stages)

    @property
    def estimate(self) -> float:
        """Cost relative to training a masked LM; a masked LM is measured both on clean text and as it was trained."""
        relative = {"translation": 0.7, "causal-lm": 0.4, "masked-lm": 0.8}
        return relative.get(self.subject.recipe.objective.name, 0.5)

    @property
    def corpus(self) -> Corpus:
        return self.models.data.analysed

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        plan = self.models.plan
        elsewhere = {measure.name for measure in requested_measures(plan)}  # by a subject's stage
        measures = [*standard_measures(plan.analysis), *own_measures(plan.plugins)]
        return measures_by_table([measure for measure in measures if measure.name not in elsewhere])

    @property
    def pair_measures(self) -> list[PairMeasure]:
        return pair_measures(self.models.plan.analysis)

    def table_keys(self) -> dict[str, str]:
        plan, states = self.models.plan.analysis, self.models.states_key(self.subject)
        of = [self.models.train_key(self.subject.recipe), self.subject.trained, plan.sentences]
        scores = digest([digest(of), TASK_SCORES.version, plan.bleu_sentences, plan.beams])
        more = {name: [plan.training_sentences] for name in self._with_training_text}
        keys = {name: digest([states, described(own), *more.get(name, [])]) for name, own in self.by_table.items()}
        return {TASK_SCORES.name: scores} | keys | transfer_keys(states, self.models.other_domain, plan)

    def samples_key(self) -> str:
        return digest([self.models.states_key(self.subject), described(self.pair_measures)])

    def plain_schemas(self) -> Schemas:
        return {schema.name: schema for schema in (TASK_SCORES, ABLATION_TRANSFER)} | super().plain_schemas()

    @cached_property
    def _with_training_text(self) -> list[str]:
        """Tables that also need token counts of the training text, but whose measures learn nothing from it."""
        if not self.models.plan.analysis.training_sentences:
            return []
        return [name for name, writing in self.by_table.items() if isinstance(writing[0], MutualInformation)]

    def measured(self, model: Model, names: Sequence[str], with_sample: bool, corpus: Corpus | None = None) -> Computed:
        more = [name for name in names if name in self._with_training_text]
        found = super().measured(model, [name for name in names if name not in more], with_sample, corpus)
        if more:
            data, most = self.models.data, self.models.plan.analysis.training_sentences
            text = data.analysed.with_test(at_most(distinct(data.train), most))
            counted = super().measured(model, more, False, text)
            tables, failures = {**found.tables, **counted.tables}, [*found.failures, *counted.failures]
            found = Computed(tables=tables, failures=failures)
        if ABLATION_TRANSFER.name not in names:
            return found
        transferred = transfer(model, self.models.data, self.models.plan.analysis, self.objective)
        return replace(found, tables={**found.tables, **transferred})

    def scores(self, model: Model) -> pd.DataFrame:
        plan, data = self.models.plan.analysis, self.models.data
        reads = self.models.plan.reads(self.objective)
        test = data.analysed if reads == "sentence" else data.test  # repeated sentences belong to their text
        frames = [self.scored(model, {"validation": data.validation, "test": test})]
        prefix = self.objective.translation_prefix
        if prefix is not None and self.subject.trained:
            current_display().note(f"Translating {plan.bleu_sentences} sentences with {model.name}.")
            frames.append(bleu_scores(model, data.test, plan.bleu_sentences, plan.beams, "test", prefix))
        if self.objective.can_write and self.subject.trained:
            held_out = self.models.held_out(self.subject.recipe, test)
            current_display().note(f"Writing {plan.bleu_sentences} texts with {model.name}.")
            ids = content_ids_of(held_out.source, test)
            frames.append(rouge_scores(model, self.objective, held_out, ids, plan.bleu_sentences, plan.beams, "test"))
        return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Compare(AbstractTableStage):
    """Distances between the token samples of a pair of models, which are both trained or both untrained."""

    kind = "compare"
    named = "compare {self.first.subject.label} and {self.second.subject.label}"
    stored = "compared"
    first: AbstractMeasureStage
    second: AbstractMeasureStage
    part: str  # key of the part that holds the numbers

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Compare]":
        measuring = {stage.subject: stage for stage in before if isinstance(stage, MeasureModel)}
        pairs = [(measuring[a], measuring[b]) for a, b in model_pairs(models.plan, list(measuring))]
        stages: list[Compare] = []
        alike: dict[str, str] = {}  # the first of equal pairs; the others wait for it and reuse its result
        for a, b in pairs:
            part = pair_key(models, a.subject, b.subject)
            same = (alike[part],) if part in alike else ()
            stages.append(cls(first=a, second=b, part=part, needs=(a.key, b.key, *same)))
            alike.setdefault(part, stages[-1].key)
        return stages

    def depends(self) -> list[Any]:
        return ["compare", self.part, self.first.subject.name, self.second.subject.name]

    @property
    def cache(self) -> ResultCache:
        return self.first.cache

    @property
    def content(self) -> str:
        return self.part

    def columns(self) -> Mapping[str, Any]:
        return pair_values(self.first.subject, self.second.subject)

    def plain_schemas(self) -> Schemas:
        return {measure.name: measure.table for measure in self.first.pair_measures}

    def make(self) -> Part:
        return compare_samples(self.first.pair_measures, self.first.sample(), self.second.sample())


def measured_subjects(models: StudyModels, recipes: Sequence[Recipe]) -> list[Subject]:
    """Controls, then trained models; variants have the plain objective's initial weights, so they need no control."""
    trained = [Subject(recipe=recipe) for recipe in recipes]
    plain = [one for one in trained if not one.recipe.objective.variant]
    controls = [one.before_training() for one in plain] if models.plan.analysis.untrained else []
    return [*controls, *trained]


def behind_each_other(stages: Sequence[StudyStage]) -> list[StudyStage]:
    """The stages with their needs: the training of a trained model, or the first control with equal states."""
    found: list[StudyStage] = []
    for stage, first in zip(stages, firsts(stages, lambda one: one.models.states_key(one.subject)), strict=True):
        models, subject = stage.models, stage.subject
        before = Train(models=models, recipe=subject.recipe).key if subject.trained else first and first.key
        found.append(replace(stage, needs=(before,)) if before else stage)
    return found


def model_pairs(plan: StudyPlan, subjects: Sequence[Subject]) -> list[Pair]:
    """The pairs that the plan compares: both trained or both untrained, and never different in both objective and seed.

    "objectives" means all pairs of objectives with the same seed, and each seed of an objective with the next one, the
    last with the first (with up to three seeds, all pairs); a variant is paired only with its own objective and its
    other variants. "neighbours" means pairs that are adjacent in the plan. "NAME|NAME" pairs these two objectives for
    each seed or, if one name is given twice, its seeds. There are no pairs if nothing is measured, and none with static
    vectors, which have no layers.
    """
    if not pair_measures(plan.analysis):
        return []
    found: list[Pair] = []
    subjects = [one for one in subjects if plan.objective(one.recipe.objective.label).family != STATIC]
    ordered = sorted(subjects, key=lambda one: (one.recipe.objective.label, one.recipe.seed))
    for first, second in combinations(ordered, 2):
        one, other = first.recipe, second.recipe
        alike = first.trained == second.trained and one.architecture == other.architecture
        alike &= (one.objective == other.objective) != (one.seed == other.seed)
        if alike and any(_compares(plan, rule, one, other) for rule in plan.pairs):
            found.append((first, second))
    return found


def pair_key(models: StudyModels, first: Subject, second: Subject) -> str:
    measures = described(pair_measures(models.plan.analysis))
    return digest([models.states_key(first), models.states_key(second), measures])


def _compares(plan: StudyPlan, rule: str, first: Recipe, second: Recipe) -> bool:
    a, b = first.objective, second.objective
    comparable = not (a.variant or b.variant) or a.name == b.name
    names, seeds = list(plan.objectives), list(plan.seeds)
    if rule == "objectives":
        apart = abs(seeds.index(first.seed) - seeds.index(second.seed))
        return comparable and apart in (0, 1, len(seeds) - 1)
    if rule == "neighbours":
        steps = names.index(a.label) - names.index(b.label), seeds.index(first.seed) - seeds.index(second.seed)
        return comparable and max(map(abs, steps)) == 1
    return sorted(rule.split("|")) == sorted((a.label, b.label))


def transfer_keys(states_key: str, other: str | None, plan: AnalysisPlan) -> dict[str, str]:
    """Keys of the table, where `other` is the digest of the other domain; empty if the plan names no other domain."""
    if other is None:
        return {}
    measure = describe_measure(Ablation(sentences=plan.ablation_sentences))
    parts = [states_key, ABLATION_TRANSFER.version, other, measure]
    return {ABLATION_TRANSFER.name: digest(parts)}


def transfer(model: Model, data: StudyData, plan: AnalysisPlan, corruption: AbstractObjective) -> Part:
    """Correlation between the effects of ablating single heads on the analysed sentences and on the other domain."""
    assert data.other_domain is not None
    if Ablation().why_not(model):
        return {}
    options = plan.passes(corruption=corruption)
    return {
        ABLATION_TRANSFER.name: ablation_transfer(
            model, data.analysed, data.other_domain, sentences=plan.ablation_sentences, options=options
        )
    }
