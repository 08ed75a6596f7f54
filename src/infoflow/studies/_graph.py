"""The graph of a study: all stages of a plan, each behind what it needs, and which of them are missing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from infoflow.foundation import digest
from infoflow.results import Recipe, RunFolder, Subject

from ._costs import Costs, estimate
from ._measures import pair_measures
from ._plan import StudyPlan
from ._study_models import StudyModels
from .stages import AbstractStage, Align, Check, Compare, CompareRecordings, Measure, Prune, Record, Train
from .stages._align import SOURCE, TARGET
from .stages._measure import described
from .stages._prune import prune_stage_key
from .stages._pruning_curves import pieces
from .stages._train import train_stage_key

Pair = tuple[Subject, Subject]


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Stages in an order in which each finds what it needs."""

    stages: Sequence[AbstractStage]

    def __iter__(self) -> Iterator[AbstractStage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, key: str) -> AbstractStage:
        return self.by_key[key]

    @property
    def by_key(self) -> Mapping[str, AbstractStage]:
        return {stage.key: stage for stage in self.stages}

    def of(self, kind: type[AbstractStage]) -> list:
        """The stages of one class."""
        return [stage for stage in self.stages if isinstance(stage, kind)]

    def missing(self) -> list[AbstractStage]:
        """The stages that are not done."""
        return [stage for stage in self.stages if not stage.is_done()]


def graph(plan: StudyPlan | Path | str, out: RunFolder | Path | str, prepared: bool = False) -> Graph:
    """All stages of a plan in the run folder `out`; nothing is trained or measured yet, but data are prepared.

    The way for scripts to do parts of a study: `for stage in graph(plan, out): ...` with `stage.kind`, `stage.label`,
    `stage.is_done()`, `stage.run()`, `stage.tables()`. `prepared`: see `StudyModels`.
    """
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    folder = out if isinstance(out, RunFolder) else RunFolder(out)
    models = StudyModels(plan, folder, prepared)
    costs = Costs(folder, plan)
    training = [_training(models, recipe) for recipe in plan.recipes()]
    training.sort(key=lambda stage: (bool(stage.needs), -estimate(stage)))  # teachers before those they teach
    recipes = [stage.recipe for stage in training]
    recording = _recording(models, recipes)
    measuring = _measuring(models, recipes)
    stages: list[AbstractStage] = [*training, *_pruning(models), *measuring, *_comparing(measuring, plan)]
    stages += [*recording, *_aligning(models, recipes)]
    stages = [replace(stage, cost=costs.of(stage), **costs.machine) for stage in stages]
    if recording:
        records = [stage for stage in stages if isinstance(stage, Record)]
        compared = CompareRecordings(recordings=records, needs=tuple(stage.key for stage in records))
        stages.append(replace(compared, cost=costs.of(compared)))
    check = Check(folder=folder, stages=stages, needs=tuple(stage.key for stage in stages))
    return Graph(stages=[*stages, replace(check, cost=costs.of(check))])


def _training(models: StudyModels, recipe: Recipe) -> Train:
    teacher = models.teacher(recipe)
    needs = () if teacher is None else (train_stage_key(models, teacher),)
    return Train(models=models, recipe=recipe, needs=needs)


def model_pairs(plan: StudyPlan, subjects: Sequence[Subject]) -> list[Pair]:
    """The pairs that the plan compares; both trained or both not, never two that differ in objective and seed.

    "objectives": every two objectives of one seed and every two seeds of one objective; a variant of an objective with
    that objective only. "neighbours": of these, what is next to each other in the plan: as many as models, not their
    square. "NAME|NAME": these two of each seed; with one name twice, its seeds.
    """
    found: list[Pair] = []
    ordered = sorted(subjects, key=lambda one: (one.recipe.objective.label, one.recipe.seed))
    for first, second in combinations(ordered, 2):
        alike = first.trained == second.trained and _share_one(first.recipe, second.recipe)
        if alike and any(_asked(plan, rule, first.recipe, second.recipe) for rule in plan.pairs):
            found.append((first, second))
    return found


def _share_one(first: Recipe, second: Recipe) -> bool:
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


def _measuring(models: StudyModels, recipes: Sequence[Recipe]) -> list[Measure]:
    """Controls, then trained models; a variant of an objective begins as the plain one, so it has no control."""
    plan = models.plan
    trained = [Subject(recipe=recipe) for recipe in recipes]
    plain = [one for one in trained if not one.recipe.objective.variant]
    controls = [one.before_training() for one in plain] if plan.analysis.untrained else []
    subjects = [*controls, *trained]
    parts: dict[Subject, list[str]] = {subject: [] for subject in subjects}
    for first, second in model_pairs(plan, subjects) if pair_measures(plan.analysis) else []:
        part = _pair_key(models, first, second)
        parts[first].append(part)
        parts[second].append(part)
    return [
        Measure(
            models=models,
            subject=subject,
            bench=models.bench,
            compared_in=tuple(parts[subject]),
            needs=(train_stage_key(models, subject.recipe),) if subject.trained else (),
        )
        for subject in subjects
    ]


def _pair_key(models: StudyModels, first: Subject, second: Subject) -> str:
    """What the comparison of two models depends on."""
    measures = described(pair_measures(models.plan.analysis))
    return digest([models.states_key(first), models.states_key(second), measures])


def _comparing(measuring: Sequence[Measure], plan: StudyPlan) -> list[Compare]:
    if not pair_measures(plan.analysis):
        return []
    stages = {stage.subject: stage for stage in measuring}
    return [
        Compare(
            first=stages[a],
            second=stages[b],
            part=_pair_key(stages[a].models, a, b),
            needs=(stages[a].key, stages[b].key),
        )
        for a, b in model_pairs(plan, list(stages))
    ]


def _recording(models: StudyModels, recipes: Sequence[Recipe]) -> list[Record]:
    if not models.plan.dynamics.on:
        return []
    return [Record(models=models, recipe=recipe, needs=(train_stage_key(models, recipe),)) for recipe in recipes]


def _aligning(models: StudyModels, recipes: Sequence[Recipe]) -> list[Align]:
    """Each seed's masked LM to its translation model, where the plan has both."""
    if not models.plan.alignment.on:
        return []
    plain = {(one.objective.name, one.seed): one for one in recipes if not one.objective.variant}
    pairs = [(plain.get((SOURCE, seed)), plain.get((TARGET, seed))) for seed in models.plan.seeds]
    return [
        Align(models=models, source=a, target=b, needs=(train_stage_key(models, a), train_stage_key(models, b)))
        for a, b in pairs
        if a is not None and b is not None
    ]


def _pruning(models: StudyModels) -> list[Prune]:
    """The pieces that the plan asks for, each behind what it needs."""
    plan = models.plan
    if not plan.pruning.on:
        return []
    stages = []
    for recipe in plan.recipes(plan.pruning.objectives):
        for piece in pieces(plan, recipe.objective):
            before = train_stage_key(models, recipe)
            if piece.before is not None:
                before = prune_stage_key(models, recipe, piece.before)
            stages.append(Prune(models=models, recipe=recipe, piece=piece, needs=(before,)))
    return stages
