"""The points of each way of pruning, one after the other, each with its model as it is there."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infoflow.flow import PassOptions
from infoflow.foundation import digest
from infoflow.heads import Head, HeadSet, ablate
from infoflow.models import Model
from infoflow.pruning import GatedPoint, greedy_removals, learn_gates, learn_subset
from infoflow.results import UNTRAINED, Recipe, Subject
from infoflow.training import TrainConfig

from .._data import at_most
from .._study_models import StudyModels
from ._pruning_curves import EXACTLY, LEARNED, SCRATCH, STRAIGHT, PlannedPoint, RemovalOrder, learning_key, swept

_FOLDER = "pruning"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Point:
    """A point of a curve: its model, until the next one is asked for, and the heads that are to be ablated in it."""

    place: PlannedPoint
    model: Model
    removed: HeadSet
    undecided: int = 0
    learned: Mapping[Head, tuple[float, float]] | None = None  # gate and log α


def points(
    models: StudyModels,
    recipe: Recipe,
    curve: RemovalOrder,
    wanted: Sequence[PlannedPoint],
    every: Sequence[PlannedPoint],
) -> Iterator[Point]:
    """The points `wanted` of a curve whose points are `every`; what goes on from point to
    point passes through those before as well."""
    last = max(place.index for place in wanted)
    passed = [place for place in every if place.index <= last] if curve.way in (LEARNED, "iterative") else wanted
    ways: dict[str, Callable[..., Iterator[Point]]] = {LEARNED: _swept, SCRATCH: _from_scratch} | dict.fromkeys(
        EXACTLY, _subsets
    )
    return ways.get(curve.way, _chosen)(models, recipe, curve, passed)


def _swept(models: StudyModels, recipe: Recipe, curve: RemovalOrder, places: Sequence[PlannedPoint]) -> Iterator[Point]:
    plan, model = models.plan.pruning, models.load(Subject(recipe=recipe))
    sweep = learn_gates(
        model,
        models.objective(recipe),
        models.training_data(recipe),
        _config(models, recipe),
        models.bench.path(_FOLDER, learning_key(models, recipe, curve)),
        penalties=[place.setting for place in places],
        kinds=curve.kinds,
        gate_rate=plan.gate_rate,
        seed=recipe.seed,
    )
    for place, point in zip(places, sweep, strict=True):
        yield _gated(place, model, point)
        models.drop_checkpoints(point.folder)


def _subsets(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, places: Sequence[PlannedPoint]
) -> Iterator[Point]:
    for place in places:
        model = models.load(Subject(recipe=recipe))
        point = learn_subset(
            model,
            models.objective(recipe),
            models.training_data(recipe),
            _config(models, recipe),
            models.bench.path(_FOLDER, learning_key(models, recipe, curve)),
            k=int(place.setting),
            kinds=curve.kinds,
            straight_through=curve.way == STRAIGHT,
            rest="auto",
            seed=recipe.seed,
        )
        yield _gated(place, model, point)
        models.drop_checkpoints(point.folder)


def _chosen(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, places: Sequence[PlannedPoint]
) -> Iterator[Point]:
    plan, model = models.plan.pruning, models.load(Subject(recipe=recipe))
    choices = greedy_removals(
        model,
        at_most(models.data.validation, plan.rank_sentences),
        by=curve.way,
        keep=[int(place.setting) for place in places],
        kinds=curve.kinds,
        draw=curve.order,
        options=pass_options(models, recipe),
    )
    for place, (_, removed) in zip(places, choices, strict=True):
        yield Point(place=place, model=model, removed=removed)


def _from_scratch(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, places: Sequence[PlannedPoint]
) -> Iterator[Point]:
    """Fixed gates from the first update on: those of the sweep's point. Where no head went, the model itself."""
    left = swept(models, recipe, curve.scope)
    assert left is not None, "its sweep comes before"
    for place in places:
        removed = left[place.index]
        if not removed:
            yield Point(place=place, model=models.load(Subject(recipe=recipe)), removed=removed)
            continue
        folder = models.bench.path(_FOLDER, digest([curve.scope, place.origin]))
        model = models.load(Subject(recipe=recipe, update=UNTRAINED))
        with ablate(model, sorted(removed)):
            models.train_into(recipe, folder, [], model.module, keep_last=1)
        model.module.eval()
        yield Point(place=place, model=model, removed=removed)
        models.drop_checkpoints(folder)


def pass_options(models: StudyModels, recipe: Recipe) -> PassOptions:
    """How sentences are run through pruned models."""
    return PassOptions(tokens_per_batch=models.plan.analysis.tokens_per_batch, corruption=models.objective(recipe))


def _config(models: StudyModels, recipe: Recipe) -> TrainConfig:
    plan = models.plan.pruning
    return dataclasses.replace(
        models.plan.training,
        seed=recipe.seed,
        updates=plan.updates,
        max_source_tokens=None,
        learning_rate=plan.learning_rate,
        schedule="constant",
        weight_decay=0.0,
        evaluate_every=0,
        save_every=plan.save_every,
        keep_last=1,
    )


def _gated(place: PlannedPoint, model: Model, point: GatedPoint) -> Point:
    return Point(
        place=place,
        model=model,
        removed=point.removed,
        undecided=point.undecided,
        learned=dict(zip(point.heads, zip(point.gates, point.values, strict=True), strict=True)),
    )
