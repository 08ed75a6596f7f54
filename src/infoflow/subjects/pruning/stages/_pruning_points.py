"""The steps of each pruning method in sequence, each with its model at that step."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infoflow.foundation import digest, hash64, make_display, use_display
from infoflow.heads import Head, HeadSet, ablate
from infoflow.models import Model
from infoflow.results import UNTRAINED, Recipe, Subject
from infoflow.studies._data import at_most
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._train import pass_options
from infoflow.training import TrainConfig

from ..measures import GatedPoint, greedy_removals, learn_gates, learn_subset, rank_heads, recover
from ._pruning_curves import (
    EXACTLY,
    LEARNED,
    RANDOM,
    RECOVERED,
    RECOVERED_ALL,
    RECOVERING,
    SCRATCH,
    STRAIGHT,
    PlannedPoint,
    RemovalOrder,
    learning_key,
    recovering_updates,
    swept,
)

_FOLDER = "pruning"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Point:
    """A sweep step: its model, valid until the next step is requested, and the heads to ablate in it."""

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
    """Compute the steps `wanted` of a curve whose planned steps are `every`.

    Methods that continue from step to step also pass through the earlier steps.
    """
    last = max(place.index for place in wanted)
    passed = [place for place in every if place.index <= last] if curve.way in (LEARNED, "iterative") else wanted
    ways: dict[str, Callable[..., Iterator[Point]]] = {LEARNED: _swept, SCRATCH: _from_scratch}
    ways |= dict.fromkeys(EXACTLY, _subsets) | dict.fromkeys(RECOVERING, _recovered)
    return ways.get(curve.way, _chosen)(models, recipe, curve, passed)


def _swept(models: StudyModels, recipe: Recipe, curve: RemovalOrder, places: Sequence[PlannedPoint]) -> Iterator[Point]:
    model = models.load(Subject(recipe=recipe))
    sweep = _sweep(models, recipe, curve, model, [place.setting for place in places])
    for place, point in zip(places, sweep, strict=True):
        yield _gated(place, model, point)
        models.drop_checkpoints(point.folder)


def _sweep(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, model: Model, penalties: Sequence[float]
) -> Iterator[GatedPoint]:
    return learn_gates(
        model,
        models.objective(recipe),
        models.training_data(recipe),
        _config(models, recipe),
        models.bench.path(_FOLDER, learning_key(models, recipe, curve)),
        penalties=penalties,
        kinds=curve.kinds,
        gate_rate=models.plan.pruning.gate_rate,
        seed=recipe.seed,
    )


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
    """Train from scratch with the step's gates fixed; yield the model itself if no head was removed."""
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


def _recovered(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, places: Sequence[PlannedPoint]
) -> Iterator[Point]:
    """Train further, with gates fully open: from the weights of the step, or from those of the converged model."""
    for place in places:
        model, removed = _to_recover(models, recipe, curve, place)
        objective, data = models.objective(recipe), models.training_data(recipe)
        config = _falling(models, recipe, curve, place)
        out = models.bench.path(_FOLDER, digest([curve.scope, place.origin]))
        folder = recover(model, objective, data, config, out, removed=removed)
        yield Point(place=place, model=model, removed=removed)
        models.drop_checkpoints(folder)


def _to_recover(models: StudyModels, recipe: Recipe, curve: RemovalOrder, place: PlannedPoint) -> tuple[Model, HeadSet]:
    model = models.load(Subject(recipe=recipe))
    if curve.way == RECOVERED_ALL:
        return model, frozenset()
    left = swept(models, recipe, curve.scope)
    assert left is not None, "its sweep comes before"
    removed = left[place.index]
    if curve.way == RECOVERED:
        sweep = RemovalOrder(way=LEARNED, scope=curve.scope)
        with use_display(make_display("silent")):  # the sweep was reported when it was learned
            for _ in _sweep(models, recipe, sweep, model, models.plan.pruning.penalties[: place.index + 1]):
                pass  # finished runs are read, so the model has the weights of the last one
        return model, removed
    order = rank_heads(model, models.data.validation, RANDOM, kinds=curve.kinds, draw=recipe.seed)
    return model, frozenset(order[: len(removed)])


def _falling(models: StudyModels, recipe: Recipe, curve: RemovalOrder, place: PlannedPoint) -> TrainConfig:
    """The schedule of recovery: the rate warms up over the same share of updates as in training, and decays to 0."""
    training, plan = models.plan.training, models.plan.pruning
    return dataclasses.replace(
        training,
        seed=derived_seed("recovering-model", recipe.seed),
        updates=recovering_updates(models, curve, place.index),
        max_source_tokens=None,
        learning_rate=plan.recover_learning_rate or training.learning_rate,
        schedule="linear",
        warmup=min(training.warmup_updates, training.updates - 1) / training.updates,
        end_learning_rate=0.0,
        evaluate_every=0,
        save_every=plan.save_every,
        keep_last=1,
    )


def _config(models: StudyModels, recipe: Recipe) -> TrainConfig:
    plan = models.plan.pruning
    return dataclasses.replace(
        models.plan.training,
        seed=recipe.seed,
        updates=plan.updates,
        max_source_tokens=None,
        learning_rate=plan.learning_rate,
        schedule="constant",
        end_learning_rate=min(models.plan.training.end_learning_rate, plan.learning_rate),  # a constant rate has no end
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


def derived_seed(purpose: str, seed: int) -> int:
    """A seed of at least 2³¹, outside the range of plans, derived from the purpose and the trained model's seed."""
    return 2**31 + hash64(purpose, seed) % 2**31
