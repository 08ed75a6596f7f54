"""The curves of a study's pruning: how they are grouped, and what each step depends on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infoflow.architectures import kinds_of, layers_in
from infoflow.flow import describe_measure
from infoflow.foundation import digest
from infoflow.heads import HeadSet
from infoflow.results import Recipe, Spec
from infoflow.studies._plan import StudyPlan
from infoflow.studies._study_models import StudyModels

from ..measures import ALL_HEADS, PRUNED_HEADS, PRUNED_ROLES, PRUNING, role_measures
from ..settings import PruningPlan

PRUNED = "pruned"
UNPRUNED = "unpruned"
"""The method name of the converged model, with which all pruned models are compared."""
LEARNED, SUBSET, SCRATCH, RANDOM, GREEDILY = "hard-concrete", "subset", "scratch", "random", "greedy"
STRAIGHT = "straight-through"
EXACTLY = (SUBSET, STRAIGHT)
"""Gates that let exactly k heads pass: in the limit of a falling temperature, or in every update."""
RECOVERED, RECOVERED_RANDOM, RECOVERED_ALL = "recovered", "recovered-random", "recovered-all"
RECOVERING = (RECOVERED, RECOVERED_RANDOM, RECOVERED_ALL)
"""Further training without gates, and its controls.

The first method trains the heads of a sweep step further. The controls train as many random heads (drawn by the seed),
and all heads; they start from the converged model and get the same total number of updates.
"""

_VERSION = 1  # increase when the same plan prunes or scores differently
_TRAINED = (LEARNED, *EXACTLY, SCRATCH, *RECOVERING)
_WITH_ROLES = (LEARNED, *EXACTLY, SCRATCH, RANDOM)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovalOrder:
    """A method of choosing heads within one scope."""

    way: str  # "hard-concrete", "subset", "straight-through", "scratch", of `RECOVERING`, or of `GREEDY`
    scope: str  # heads that may be removed; empty: none
    order: int = 0  # number of the random order

    @property
    def kinds(self) -> tuple[str, ...] | None:
        return None if self.scope == ALL_HEADS else (self.scope,)

    def draw(self, recipe: Recipe) -> int:
        """The number of the draw in tables: the number of the random order, or the seed of the training."""
        return recipe.seed if self.way in _TRAINED else self.order

    @property
    def group(self) -> "CurveGroup":
        """The group of curves that one stage computes and that contains this curve; all greedy curves share a group."""
        return CurveGroup(self.way if self.way in _TRAINED else GREEDILY, self.scope)


@dataclass(frozen=True, slots=True)
class CurveGroup:
    """The curves of one stage: the curves of one method, or all greedy curves, in one scope."""

    way: str
    scope: str = ""

    def __str__(self) -> str:
        return f"{self.way} in {self.scope}" if self.scope else self.way

    @property
    def before(self) -> "CurveGroup | None":
        """The group that must be computed first; None if the trained model suffices."""
        if self.way == UNPRUNED:
            return None
        return (
            CurveGroup(UNPRUNED) if self.way in (LEARNED, *EXACTLY, RECOVERED_ALL) else CurveGroup(LEARNED, self.scope)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPoint:
    """A planned step of a curve."""

    index: int
    setting: float
    origin: str  # digest of everything that determines the step's heads and weights


def curves(plan: StudyPlan, objective: Spec) -> list[RemovalOrder]:
    """The curves that the plan requests for a model of the objective, in order of dependency."""
    pruning, found = plan.pruning, list[RemovalOrder]()
    for scope in scopes(plan, objective):
        exactly = (SUBSET, *([STRAIGHT] if pruning.straight_through else [])) if pruning.subset else ()
        ways = (LEARNED, *exactly, *(way for way in pruning.greedy if way != RANDOM))
        found += [RemovalOrder(way=way, scope=scope) for way in ways]
        if RANDOM in pruning.greedy:
            found += [RemovalOrder(way=RANDOM, scope=scope, order=order) for order in range(pruning.random_draws)]
        if pruning.scratch and scope in (pruning.scratch_scopes or pruning.scopes):
            found.append(RemovalOrder(way=SCRATCH, scope=scope))
        if pruning.recover:
            found += [RemovalOrder(way=way, scope=scope) for way in (RECOVERED, RECOVERED_RANDOM)]
    if pruning.recover and found:
        found.append(RemovalOrder(way=RECOVERED_ALL, scope=""))
    return found


def scopes(plan: StudyPlan, objective: Spec) -> list[str]:
    """The plan's scopes that a model of the objective has; "all" only if it differs from the others."""
    kinds = kinds_of(plan.objective(objective.label).layout)
    there = [scope for scope in dict.fromkeys(plan.pruning.scopes) if scope in (*kinds, ALL_HEADS)]
    return [scope for scope in there if scope != ALL_HEADS or len(kinds) > 1 or there == [ALL_HEADS]]


def groups(plan: StudyPlan, objective: Spec) -> list[CurveGroup]:
    """The groups of curves for a model of the objective, each after the groups that it needs."""
    return [CurveGroup(UNPRUNED), *dict.fromkeys(curve.group for curve in curves(plan, objective))]


def num_heads(plan: StudyPlan, objective: Spec, scope: str) -> int:
    """Number of heads in a scope of a model."""
    return plan.model.heads * layers_in(plan.model, plan.match, plan.objective(objective.label).layout, scope)


def places(models: StudyModels, recipe: Recipe, curve: RemovalOrder) -> list[PlannedPoint] | None:
    """The steps of a curve; None while the sweep that they depend on is missing."""
    plan = models.plan.pruning
    if curve.way == LEARNED:
        base = learning_key(models, recipe, curve)
        return [
            PlannedPoint(index=index, setting=penalty, origin=digest([base, plan.penalties[: index + 1]]))
            for index, penalty in enumerate(plan.penalties)
        ]
    if curve.way in EXACTLY:
        base = learning_key(models, recipe, curve)
        counts, _ = _counts(models, recipe, curve, plan.subset)
        return _numbered(counts, [[base, k] for k in counts])
    if curve.way == RECOVERED_ALL:
        total = num_heads(models.plan, recipe.objective, ALL_HEADS)
        return _numbered([total], [[_recovering(models, recipe, curve), recovering_updates(models, curve, 0)]])
    left = swept(models, recipe, curve.scope)
    if left is None:
        return None
    if curve.way == SCRATCH:
        trained = models.train_key(recipe)
        return _at_penalties(plan, plan.scratch_points, lambda at: [_VERSION, SCRATCH, trained, sorted(left[at])])
    if curve.way in (RECOVERED, RECOVERED_RANDOM):
        every = _at_penalties(plan, plan.recover_points, lambda at: _begun(models, recipe, curve, left, at))
        return [place for place in every if left[place.index]]  # without removed heads there is nothing to recover from
    return _greedy_places(models, recipe, curve, left)


def too_many(models: StudyModels, recipe: Recipe, curve: RemovalOrder) -> list[int]:
    """Requested numbers of heads that exceed the scope."""
    plan = models.plan.pruning
    requested = plan.subset if curve.way in EXACTLY else () if curve.way in _TRAINED else plan.keep
    return _counts(models, recipe, curve, requested)[1] if requested else []


def learning_key(models: StudyModels, recipe: Recipe, curve: RemovalOrder) -> str:
    """Key of learned gates, regardless of their penalties or number."""
    plan = models.plan.pruning
    return digest(
        [_VERSION, curve.way, curve.scope, models.train_key(recipe), plan.updates, plan.learning_rate, plan.gate_rate]
    )


def table_keys(models: StudyModels, curve: RemovalOrder | None, origin: str) -> dict[str, str]:
    """Keys of a step's tables; without a curve, the keys of the converged model's tables."""
    plan, analysis = models.plan.pruning, models.plan.analysis
    scored = [origin, plan.metric, analysis.sentences, plan.score_sentences, analysis.beams]
    keys = {
        PRUNING.name: digest([PRUNING.name, PRUNING.version, scored]),
        PRUNED_HEADS.name: digest([PRUNED_HEADS.name, PRUNED_HEADS.version, origin]),
    }
    if plan.roles and (curve is None or curve.way in _WITH_ROLES):
        measures = [describe_measure(measure) for measure in role_measures()]
        looked_at = [origin, analysis.sentences, plan.role_sentences, measures]
        keys[PRUNED_ROLES.name] = digest([PRUNED_ROLES.name, PRUNED_ROLES.version, looked_at])
    return keys


def swept(models: StudyModels, recipe: Recipe, scope: str) -> list[HeadSet] | None:
    """The heads removed at each step of the scope's sweep of learned gates; None until all exist."""
    curve, removed = RemovalOrder(way=LEARNED, scope=scope), list[HeadSet]()
    for place in places(models, recipe, curve) or []:
        key = table_keys(models, curve, place.origin)[PRUNED_HEADS.name]
        if not models.bench.done(PRUNED, key):
            return None
        heads = models.bench.read(PRUNED, key)[PRUNED_HEADS.name]
        gone = heads.loc[~heads["alive"], ["stack", "kind", "layer", "head"]].itertuples(index=False, name=None)
        removed.append(frozenset((str(stack), str(kind), int(layer), int(head)) for stack, kind, layer, head in gone))
    return removed


def recovering_updates(models: StudyModels, curve: RemovalOrder, point: int) -> int:
    """Updates of recovery, including those of the sweep if training does not start from the sweep's model.

    The control with all heads is trained as long as the model of the last recovered step.
    """
    plan = models.plan.pruning
    if curve.way == RECOVERED_ALL:
        point = max(plan.recover_points or range(len(plan.penalties)))
    before = 0 if curve.way == RECOVERED else plan.updates * (point + 1)
    return (plan.recover_updates or models.plan.training.updates) + before


def _recovering(models: StudyModels, recipe: Recipe, curve: RemovalOrder) -> list[object]:
    """What a recovering model depends on, apart from its initial heads and weights and its training length."""
    rate = models.plan.pruning.recover_learning_rate
    return [_VERSION, curve.way, curve.scope, models.train_key(recipe), rate]


def _begun(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, left: Sequence[HeadSet], point: int
) -> list[object]:
    """Dependencies of a model that recovers from a sweep step."""
    first: str | int = len(left[point])  # number of heads; the seed determines which
    if curve.way == RECOVERED:
        sweep = places(models, recipe, RemovalOrder(way=LEARNED, scope=curve.scope)) or []
        first = sweep[point].origin
    return [_recovering(models, recipe, curve), [first, recovering_updates(models, curve, point)]]


def _at_penalties(plan: PruningPlan, indices: Sequence[int], origin: Callable[[int], object]) -> list[PlannedPoint]:
    """The requested steps of the sweep (default: all), each with what determines its heads and weights."""
    points = sorted(set(indices or range(len(plan.penalties))))
    return [PlannedPoint(index=at, setting=plan.penalties[at], origin=digest(origin(at))) for at in points]


def _greedy_places(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, left: Sequence[HeadSet]
) -> list[PlannedPoint]:
    plan = models.plan.pruning
    total = num_heads(models.plan, recipe.objective, curve.scope)
    counts, _ = _counts(models, recipe, curve, plan.keep or [float(total - len(removed)) for removed in left])
    ranked_on = [] if curve.way == RANDOM else [plan.rank_sentences]
    base = [_VERSION, curve.way, curve.scope, curve.order, models.train_key(recipe), ranked_on]
    # Iterative choices depend on the preceding larger ones.
    return _numbered(counts, [[base, counts[: i + 1] if curve.way == "iterative" else k] for i, k in enumerate(counts)])


def _counts(
    models: StudyModels, recipe: Recipe, curve: RemovalOrder, requested: Sequence[float]
) -> tuple[list[int], list[int]]:
    """Numbers of heads in decreasing order: those that the scope allows, and those that exceed it."""
    total = num_heads(models.plan, recipe.objective, curve.scope)
    counts = sorted({round(k * total) if k < 1 else int(k) for k in requested}, reverse=True)
    return [k for k in counts if k <= total], [k for k in counts if k > total]


def _numbered(counts: Sequence[int], origins: Sequence[object]) -> list[PlannedPoint]:
    both = enumerate(zip(counts, origins, strict=True))
    return [PlannedPoint(index=index, setting=float(k), origin=digest(origin)) for index, (k, origin) in both]
