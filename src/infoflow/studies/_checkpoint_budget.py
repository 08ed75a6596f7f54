"""Whether the checkpoints that a plan wants fit on the disk it allows them: known before anything is trained."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from infoflow.foundation import UserError, current_display
from infoflow.over_training import checkpoint_steps
from infoflow.results import Recipe
from infoflow.training import TrainConfig

from ._study_models import TRAINED, StudyModels

_MOST = 10_000  # K of log:K that a message would name
_GRIDS = re.compile(r"(?:log|linear):([0-9]+)")


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one training keeps."""

    parameters: int
    training: TrainConfig  # as long as it really is
    dtype: str

    def size(self, steps: list[int]) -> int:
        r"""Bytes: \(4 P\) for each of the first and the last, \(4 P\) or \(2 P\) for the others."""
        width = 4 if self.dtype == "float32" else 2
        ends = len({0, self.training.updates} & set(steps))
        return self.parameters * (4 * ends + width * (len(steps) - ends))


def check_budget(models: StudyModels) -> None:
    """Hold the size of all checkpoints of a study against the plan's budget.

    Raises:
        UserError: They take more, or the schedule names an update that a training does not reach.
    """
    plan = models.plan.checkpoints
    sizes: dict[tuple[str, str], int] = {}  # the same for all seeds
    for recipe in models.plan.recipes():
        if _kind(recipe) not in sizes:
            sizes[_kind(recipe)] = _parameters(models, recipe)
    kept = [_kept(models, recipe, sizes[_kind(recipe)]) for recipe in models.plan.recipes()]
    needed = sum(one.size(plan.steps(one.training)) for one in kept)
    _tell_short_trainings(plan.schedule, min(one.training.updates for one in kept))
    if needed <= plan.budget * 1e9:
        return
    count = len(plan.steps(kept[0].training))
    fitting = _largest(lambda k: sum(one.size(_log(k, one)) for one in kept) <= plan.budget * 1e9)
    way_out = f'checkpoints.schedule = "log:{fitting}" fits' if fitting else "Not even the first and the last fit"
    share = f"of each of {len(kept)} trainings" if len(kept) > 1 else "of one training"
    raise UserError(
        f"checkpoints.budget must hold all checkpoints of the study: {count} {share}, {needed / 1e9:.3g} GB. Got "
        f"{plan.budget:g} GB. {way_out}; or raise the budget."
    )


def _kept(models: StudyModels, recipe: Recipe, parameters: int) -> _Kept:
    training = replace(models.plan.training, updates=models.updates(recipe))
    return _Kept(parameters, training, models.plan.checkpoints.dtype)


def _kind(recipe: Recipe) -> tuple[str, str]:
    return recipe.objective.label, recipe.architecture.label


def _parameters(models: StudyModels, recipe: Recipe) -> int:
    """Weights that are stored, shared ones once."""
    if models.is_trained(recipe):
        return models.bench.read_facts(TRAINED, models.train_key(recipe))["parameters"]
    return sum(parameter.numel() for parameter in models.initial(recipe).parameters())


def _log(k: int, one: _Kept) -> list[int]:
    training = one.training
    return checkpoint_steps(f"log:{k}", training.updates, min(training.warmup_updates, training.updates))


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest k that fits; 0: none."""
    low, high = 0, _MOST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _tell_short_trainings(schedule: str, updates: int) -> None:
    beyond = [int(number) for number in _GRIDS.findall(schedule) if int(number) > updates]
    if beyond:
        current_display().note(
            f"checkpoints.schedule = {schedule}: the training has {updates:,} updates, fewer than {max(beyond):,}, so "
            "each of them is kept."
        )
