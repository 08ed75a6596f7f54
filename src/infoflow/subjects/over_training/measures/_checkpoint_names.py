"""Parses names of external checkpoints: step, tokens, stage of training."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infoflow.foundation import UserError

_SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_STEP = re.compile(
    r"(?:^|[-_./])(?:global[-_]?step|step|checkpoint|ckpt|iter)[-_]?(?P<step>\d{1,12}(?:\.\d{1,9})?)(?P<scale>[km]?)(?![a-z0-9.])",
    re.IGNORECASE,
)
_TOKENS = re.compile(
    r"[-_](?:tokens?[-_]?(?P<told>\d{1,12}(?:\.\d{1,9})?)(?P<scale>[mbt])t?|(?P<bare>\d{1,12}(?:\.\d{1,9})?)(?P<bare_scale>[mbt])t?)$",
    re.IGNORECASE,
)
_STAGE = re.compile(r"(?:^|[-_./])stage[-_]?(\d{1,9})(?=[-_])", re.IGNORECASE)
_INGREDIENT = re.compile(r"[-_]ingredient[-_]?(\d{1,9})(?=[-_])", re.IGNORECASE)
_LISTED = 12
MOST_UPDATES = 10**12
"""A larger step indicates damage: tables hold 64-bit integers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointName:
    """A parsed name."""

    text: str
    step: int
    tokens: float = math.nan  # NaN: not in the name
    stage: int = 0  # of a training in stages, each with its own step count; 0: not in the name
    ingredient: int = 0  # branch of a stage; 0: none


def checkpoint_name(text: str) -> CheckpointName | None:
    """Parses a name such as `step1000`, `step_20k` or `stage1-step101000-tokens424B`; None if it has no step.

    The number after step or checkpoint counts; k and M are factors on it, as are M, B and T on the number of tokens.

    >>> checkpoint_name("step-001000-2BT")
    CheckpointName(text='step-001000-2BT', step=1000, tokens=2000000000.0, stage=0, ingredient=0)
    """
    found = _STEP.search(text)
    if found is None:
        return None
    stage, ingredient = _STAGE.search(text), _INGREDIENT.search(text)
    return CheckpointName(
        text=text,
        step=round(float(found["step"]) * _SCALES[found["scale"].lower()]),
        tokens=_tokens(text[found.end() :]),
        stage=int(stage[1]) if stage else 0,
        ingredient=int(ingredient[1]) if ingredient else 0,
    )


def checkpoint_names(names: Iterable[str], steps: Mapping[str, int], what: str) -> list[CheckpointName]:
    """All names, parsed; `steps` gives the step of a name explicitly.

    Raises:
        UserError: A name has no step.
    """
    read = {name: _by_hand(name, steps) or checkpoint_name(name) for name in names}
    if unread := [name for name, found in read.items() if found is None]:
        more = f" and {len(unread) - _LISTED} more" if len(unread) > _LISTED else ""
        raise UserError(
            f"No step can be read from these names in {what}: {', '.join(unread[:_LISTED])}{more}. "
            f"Say which each is: --steps {unread[0]}=1000"
        )
    return [found for found in read.values() if found is not None]


def parse_steps(texts: Iterable[str]) -> dict[str, int]:
    """`NAME=STEP`, as in `--steps`.

    Raises:
        UserError: An entry is malformed, or a name occurs twice.
    """
    steps: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not equals or not name or not re.fullmatch(r"[0-9]{1,12}", number):
            raise UserError(f"--steps takes NAME=STEP, such as --steps final=1000. Got {text[:80]}.")
        if name in steps:
            raise UserError(f"--steps must name each checkpoint once. Got {name[:80]} twice.")
        steps[name] = int(number)
    return steps


def _tokens(rest: str) -> float:
    found = _TOKENS.search(rest)
    if found is None:
        return math.nan
    number, scale = found["told"] or found["bare"], found["scale"] or found["bare_scale"]
    return float(number) * _SCALES[scale.lower()]


def _by_hand(name: str, steps: Mapping[str, int]) -> CheckpointName | None:
    return CheckpointName(text=name, step=steps[name]) if name in steps else None
