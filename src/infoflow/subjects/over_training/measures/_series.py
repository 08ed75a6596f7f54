"""The checkpoints of one training, in order, from sources such as `NAME@log:12` and folders of checkpoints."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from infoflow.foundation import UserError
from infoflow.training import select_steps

from ._checkpoint_names import CheckpointName
from ._places import AbstractPlace
from ._public_suites import PublicSuite
from ._trainer_state import TrainerState

MAIN = "main"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SuiteCheckpoint:
    """One checkpoint: its location and its metadata."""

    name: str  # of its folder or its revision
    update: int
    place: AbstractPlace
    tokens: float = math.nan
    named: int | None = None  # the step in its name; None: it has none
    by_hand: bool = False  # the user specified its update
    state: TrainerState = TrainerState()  # noqa: RUF009 (frozen)


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """A missing checkpoint."""

    name: str
    update: int
    why: str
    lost: bool = False
    """Whether a manifest recorded it and its content."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CheckpointSeries:
    """Checkpoints of one training by ascending update; two may claim the same one."""

    name: str
    checkpoints: tuple[SuiteCheckpoint, ...]
    missing: tuple[Missing, ...] = ()
    suite: PublicSuite | None = None
    notes: tuple[str, ...] = ()

    @property
    def updates(self) -> int:
        """N of the whole training: as recorded, from its suite, or else the last checkpoint."""
        told = [one.state.updates for one in self.checkpoints if one.state.updates]
        last = max(one.update for one in self.checkpoints)
        known = max([*told, *(self.suite.steps if self.suite else ())], default=last)
        return known if known >= last else last

    @property
    def is_provisional(self) -> bool:
        """Whether the length of the training is known only from the checkpoints."""
        return not (any(one.state.updates for one in self.checkpoints) or (self.suite and self.suite.steps))


def checkpoint_of(name: CheckpointName | None, text: str, place: AbstractPlace, state: TrainerState,
                  suite: PublicSuite | None, by_hand: Mapping[str, int]) -> SuiteCheckpoint | None:  # fmt: skip
    """The checkpoint at the recorded update, else at that of its name; None if there is neither.

    Its tokens are those counted in training, else those in the name, else updates times the suite's tokens per update
    if known; never guessed.
    """
    update = name.step if name and text in by_hand else state.step if state.step is not None else None
    if update is None and name is None:
        return None
    update = name.step if update is None and name is not None else update
    assert update is not None
    tokens = state.tokens
    if math.isnan(tokens) and name is not None:
        tokens = name.tokens
    if math.isnan(tokens) and suite is not None and suite.tokens_per_update:
        tokens = float(update * suite.tokens_per_update)
    tokens = 0.0 if update == 0 else tokens
    return SuiteCheckpoint(
        name=text,
        update=update,
        place=place,
        tokens=tokens,
        named=name.step if name else None,
        by_hand=text in by_hand,
        state=state,
    )


def in_stages(found: Sequence[tuple[CheckpointName, SuiteCheckpoint]]) -> list[list[SuiteCheckpoint]]:
    """One series, or one for each branch ("ingredient") of a later stage; stages are ordered by their tokens.

    Raises:
        UserError: There are several stages, and the names have no tokens.
    """
    stages = sorted({name.stage for name, _ in found})
    branches = sorted({name.ingredient for name, _ in found if name.ingredient}) or [0]
    return [_one_axis([pair for pair in found if pair[0].ingredient in (0, branch)], stages) for branch in branches]


def _one_axis(found: Sequence[tuple[CheckpointName, SuiteCheckpoint]], stages: Sequence[int]) -> list[SuiteCheckpoint]:
    if len(stages) < 2:
        return [checkpoint for _, checkpoint in found]
    if untold := [name.text for name, checkpoint in found if math.isnan(checkpoint.tokens)]:
        raise UserError(
            f"A training in stages counts its steps anew, so its checkpoints stand on one axis by their tokens only. "
            f"{untold[0]} tells none. Choose checkpoints of one stage."
        )
    chained: list[SuiteCheckpoint] = []
    for stage in stages:
        steps = max((one.update for one in chained), default=0)
        tokens = max((one.tokens for one in chained), default=0.0)
        part = [checkpoint for name, checkpoint in found if name.stage == stage]
        chained += [
            replace(one, update=one.update + steps, tokens=one.tokens + tokens, named=None) if steps else one
            for one in part
        ]
    return chained


def chosen(checkpoints: Iterable[SuiteCheckpoint], choice: str, source: str) -> list[SuiteCheckpoint]:
    """The checkpoints selected by `all`, `log:K` or `A..B`, by update; two of one update stay together.

    Raises:
        UserError: The choice cannot be parsed, or is empty.
    """
    ordered = sorted(checkpoints, key=lambda one: (one.update, one.name))
    if choice in ("", "all"):
        return ordered
    if found := re.fullmatch(r"log:([0-9]{1,6})", choice):
        if int(found[1]) < 1:
            raise UserError(f"{source}: log:K takes at least 1 checkpoint. Got {choice}.")
        steps = set(select_steps(sorted({one.update for one in ordered}), int(found[1])))
        return [one for one in ordered if one.update in steps]
    if found := re.fullmatch(r"([0-9]{1,12})\.\.([0-9]{1,12})", choice):
        first, last = int(found[1]), int(found[2])
        if first > last:
            raise UserError(f"{source}: a range A..B goes from the lower step to the higher. Got {choice}.")
        inside = [one for one in ordered if first <= one.update <= last]
        if not inside:
            steps = [one.update for one in ordered]
            raise UserError(f"{source}: no checkpoint lies in {choice}. There are some from {steps[0]} to {steps[-1]}.")
        return inside
    raise UserError(f"{source[:120]} cannot be read. Write {GRAMMAR}.")


GRAMMAR = "NAME@REVISION,REVISION, NAME@all, NAME@log:12 or NAME@1000..20000"


def is_choice(text: str) -> bool:
    """Whether the part after @ is a selection, and not a list of revisions."""
    return text in ("", "all") or text.startswith("log:") or ".." in text
