"""Requirements between the parts of a plan, checked before anything is trained."""

import re
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from infoflow.architectures import FAMILIES, ModelConfig, check_trained_on
from infoflow.foundation import UserError, as_written, one_of
from infoflow.objectives import AbstractObjective, further_objectives
from infoflow.training import DEFAULT_SCHEDULE, checkpoint_steps

_VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,40}")
TEACHING = ("encoder", "encoder-pair", "encoder-spans")  # layouts of masked LMs
PAIRS = ("objectives", "neighbours")
TOKEN_DROPOUT = "token-dropout"
"""Name of the variant whose input tokens are partly replaced in training: `translation+token-dropout`."""


@runtime_checkable
class Plan(Protocol):
    """The part of a `StudyPlan` that is checked."""

    @property
    def objectives(self) -> tuple[str, ...]: ...
    @property
    def architectures(self) -> tuple[str, ...]: ...
    @property
    def variants(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def pairs(self) -> tuple[str, ...]: ...
    @property
    def context(self) -> Any: ...
    @property
    def training(self) -> Any: ...
    @property
    def checkpoints(self) -> Any: ...
    @property
    def model(self) -> ModelConfig: ...
    def objective(self, name: str) -> AbstractObjective: ...
    def fits(self, objective: str, architecture: str) -> bool: ...


def check_plan(plan: Plan) -> None:
    """Raise a UserError if a part of the plan lacks what another part needs."""
    _check_variants(plan.variants)
    for name in plan.objectives:
        _check_read(plan.objective(name).name)
    _check_teachers(plan)
    _check_architectures(plan)
    if plan.context.on:
        one_of("context.objectives", plan.context.objectives, plan.objectives)
        check_trained_on("context", {name: plan.objective(name).layout for name in plan.context.objectives})
        _check_retrained(plan)
    for pair in plan.pairs:
        _check_pair(plan, pair)
    _check_schedules(plan)


def _check_variants(variants: Mapping[str, Mapping[str, Any]]) -> None:
    if wrong := [name for name in variants if not _VARIANT.fullmatch(str(name)) or name == TOKEN_DROPOUT]:
        raise UserError(
            "The name of a variant must be letters, digits and hyphens, and not token-dropout. "
            f"Got {as_written(wrong[0])}. Choose another."
        )


def _check_read(name: str) -> None:
    if name in further_objectives():
        raise UserError(
            "An objective of a plan or of infoflow train must learn from the sentences of a corpus. "
            f"Got {name}, which also reads passages.\n"
            "Set [retrieval] on = true in a plan (as in infoflow study retrieval), or train it in Python: "
            "see docs/retrieval.md."
        )


def _check_retrained(plan: Plan) -> None:
    for name in plan.context.objectives:
        objective = plan.objective(name)
        if objective.layout == "encoder-decoder" and not objective.needs_translation:
            raise UserError(
                "context.objectives must be language models or translation models: a decoder that restores parts of "
                f"texts cannot be scored on whole ones. Got {name}. Leave it out."
            )


def _check_schedules(plan: Plan) -> None:
    asked, updates = plan.checkpoints, plan.training.updates
    for name, schedule in (("schedule", asked.schedule), ("heavy_steps", asked.heavy_steps)):
        if not schedule and name == "schedule":
            continue  # no checkpoint is kept
        try:
            checkpoint_steps(DEFAULT_SCHEDULE if schedule == "default" else schedule, updates)
        except UserError:
            raise UserError(
                f"checkpoints.{name} must be log:K, linear:K or every:M (K and M from 1), powers, default, or "
                f"different updates up to the last, {updates:,}, such as 0,{max(1, updates // 2)},{updates}; "
                f"+ joins them. Got {as_written(schedule)}."
            ) from None


def _check_teachers(plan: Plan) -> None:
    for name in plan.objectives:
        teacher = plan.objective(name).teacher
        if teacher and (teacher not in plan.objectives or plan.objective(teacher).layout not in TEACHING):
            raise UserError(
                f"{name} learns from a masked LM of the same plan. Got the teacher {as_written(teacher)}, and the "
                f"objectives {', '.join(plan.objectives)}.\nAdd masked-lm to objectives, or name a teacher in "
                "[variants.NAME]."
            )


def _check_architectures(plan: Plan) -> None:
    one_of("architectures", plan.architectures, tuple(FAMILIES))
    for family in plan.architectures:
        FAMILIES[family].check(plan.model)
    for name in plan.objectives:
        if not any(plan.fits(name, family) for family in plan.architectures):
            layout = plan.objective(name).layout
            have = ", ".join(family for family in FAMILIES if plan.fits(name, family))
            if one_table := [family for family in plan.architectures if layout in FAMILIES[family].layouts]:
                raise UserError(
                    f"{one_table[0]} has a single embedding table, so it needs a single vocabulary. {name} has "
                    f"one per language.\nSet [corpus] joint_vocabulary = true, or add one of: {have}."
                )
            raise UserError(
                f"{name} needs the layout {as_written(layout)}, which none of the plan's architectures "
                f"has. Got {', '.join(plan.architectures)}.\nAdd one of: {have}."
            )
    for family in plan.architectures:
        if not any(plan.fits(name, family) for name in plan.objectives):
            raise UserError(
                f"None of the plan's objectives fits the architecture {family}, which has the layouts "
                f"{', '.join(FAMILIES[family].layouts)}. Got {', '.join(plan.objectives)}.\nLeave it out, or add "
                "an objective."
            )


def _check_pair(plan: Plan, pair: str) -> None:
    if pair in PAIRS:
        return
    names = pair.split("|")
    if len(names) != 2 or not set(names) <= set(plan.objectives):
        raise UserError(
            f'pairs must be among {", ".join(PAIRS)}, or two objectives of the plan written "NAME|NAME". '
            f"Got {as_written(pair)}. Its objectives: {', '.join(plan.objectives)}."
        )
