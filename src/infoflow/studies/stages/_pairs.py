"""Which models of a study are compared, and what their comparison depends on."""

from collections.abc import Sequence
from itertools import combinations

from infoflow.flow import AbstractMeasure, describe_measure
from infoflow.foundation import digest
from infoflow.results import Recipe, Subject

from .._measures import pair_measures
from .._plan import StudyPlan
from .._study_models import StudyModels

Pair = tuple[Subject, Subject]
STATIC = "static"


def model_pairs(plan: StudyPlan, subjects: Sequence[Subject]) -> list[Pair]:
    """The pairs that the plan compares; both trained or both not, never two that differ in objective and seed.

    "objectives": every two objectives of one seed and every two seeds of one objective; a variant of an objective with
    that objective only. "neighbours": of these, what is next to each other in the plan: as many as models, not their
    square. "NAME|NAME": these two of each seed; with one name twice, its seeds. None where there is nothing to measure,
    and none with static vectors, which have no layers.
    """
    if not pair_measures(plan.analysis):
        return []
    found: list[Pair] = []
    subjects = [one for one in subjects if plan.objective(one.recipe.objective.label).family != STATIC]
    ordered = sorted(subjects, key=lambda one: (one.recipe.objective.label, one.recipe.seed))
    for first, second in combinations(ordered, 2):
        alike = first.trained == second.trained and _share_one(first.recipe, second.recipe)
        if alike and any(_asked(plan, rule, first.recipe, second.recipe) for rule in plan.pairs):
            found.append((first, second))
    return found


def pair_key(models: StudyModels, first: Subject, second: Subject) -> str:
    """What the comparison of two models depends on."""
    measures = described(pair_measures(models.plan.analysis))
    return digest([models.states_key(first), models.states_key(second), measures])


def described(measures: Sequence[AbstractMeasure]) -> list:
    """What the results of measures depend on beside the states."""
    return [describe_measure(each) for each in measures]


def _share_one(first: Recipe, second: Recipe) -> bool:
    if first.architecture != second.architecture:
        return False
    return (first.objective == second.objective) + (first.seed == second.seed) == 1


def _asked(plan: StudyPlan, rule: str, first: Recipe, second: Recipe) -> bool:
    a, b = first.objective, second.objective
    comparable = not (a.variant or b.variant) or a.name == b.name
    if rule == "objectives":
        return comparable
    if rule == "neighbours":
        names, seeds = list(plan.objectives), list(plan.seeds)
        steps = names.index(a.label) - names.index(b.label), seeds.index(first.seed) - seeds.index(second.seed)
        return comparable and max(map(abs, steps)) == 1
    return sorted(rule.split("|")) == sorted((a.label, b.label))
