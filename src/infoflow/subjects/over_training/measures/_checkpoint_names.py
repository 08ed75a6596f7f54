"""What is known about a checkpoint from its name, a public suite, and the records of its training."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, read_object

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
MOST_UPDATES = 10**12  # a larger step indicates damage: tables hold 64-bit integers


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointName:
    """The parts of a checkpoint's name."""

    text: str
    step: int
    tokens: float = math.nan  # NaN: not in the name
    stage: int = 0  # stage of a training whose stages count steps separately; 0: not in the name
    ingredient: int = 0  # branch of a stage; 0: none


def checkpoint_name(text: str) -> CheckpointName | None:
    """Parse a name such as `step1000`, `step_20k` or `stage1-step101000-tokens424B`; None if it has no step.

    The step is the number after "step" or "checkpoint", with factors k and M; numbers of tokens have M, B and T.

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
    """Parse all names; `steps` gives the step of a name explicitly."""
    read = {
        name: CheckpointName(text=name, step=steps[name]) if name in steps else checkpoint_name(name) for name in names
    }
    if unread := [name for name, found in read.items() if found is None]:
        more = f" and {len(unread) - _LISTED} more" if len(unread) > _LISTED else ""
        raise UserError(
            f"No step can be read from these names in {what}: {', '.join(unread[:_LISTED])}{more}. "
            f"Give the step of each: --steps {unread[0]}=1000"
        )
    return [found for found in read.values() if found is not None]


def parse_steps(texts: Iterable[str]) -> dict[str, int]:
    """Parse texts `NAME=STEP`, as given to `--steps`."""
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


# Public suites of checkpoints: known metadata. Data only; unlisted suites work without it.


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicSuite:
    """Metadata of a family of checkpoints, known in advance."""

    name: str
    pattern: str  # regular expression of its repositories' names
    steps: tuple[int, ...] = ()  # expected steps; (): unknown
    tokens_per_update: float | None = None
    doubtful: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)  # repository: revisions
    source: str = ""  # of `doubtful`


_PYTHIA_STEPS = (0, *(2**power for power in range(10)), *range(1000, 143_001, 1000))
_PYTHIA_2_8B = (0, *(2**power for power in range(10)), *range(1000, 65_000, 1000), 65_000, 70_000, 80_000, 90_000,
                100_000, 103_000, 110_000, 120_000, 130_000, 140_000)  # fmt: skip

PUBLIC_SUITES = (
    PublicSuite(
        name="Pythia",
        pattern=r"EleutherAI/(neox-ckpt-)?pythia-(?!.*-v0$)[\w.-]+",
        steps=_PYTHIA_STEPS,
        tokens_per_update=2_097_152,
        doubtful={
            "EleutherAI/pythia-2.8b": tuple(f"step{step}" for step in _PYTHIA_2_8B),
            "EleutherAI/pythia-12b": ("step50000", "step58000"),
        },
        source="https://github.com/EleutherAI/pythia/issues/205 and 206",
    ),
    PublicSuite(
        name="MultiBERTs",
        pattern=r"google/multiberts-seed_[0-4](-step_\w+)?",
        steps=(*range(0, 200_001, 20_000), *range(300_000, 2_000_001, 100_000)),
    ),
    PublicSuite(
        name="Stanford GPT-2",
        pattern=r"stanford-crfm/\w+-gpt2-(small|medium)-x\d+",
        steps=tuple(
            chain(range(0, 100, 10), range(100, 2000, 50), range(2000, 20_000, 100), range(20_000, 400_001, 1000))
        ),
        tokens_per_update=524_288,
    ),
    PublicSuite(name="OLMo", pattern=r"allenai/OLMo[\w.-]*"),  # names contain step and tokens
)
"""PolyPythias are part of Pythia: `EleutherAI/pythia-160m-seed3`."""


def public_suite(repository: str) -> PublicSuite | None:
    """The suite of a repository; None if unknown."""
    return next((suite for suite in PUBLIC_SUITES if re.fullmatch(suite.pattern, repository)), None)


# Records that a training wrote with its checkpoint.

TRAINER_STATE = "trainer_state.json"
MANIFEST = "manifest.json"
_MOST = 1e300


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """A checkpoint's position in its training, as the training recorded it; None and NaN: not recorded."""

    step: int | None = None
    updates: int | None = None  # number in the whole training
    tokens: float = math.nan  # read as input until this step
    lr: float = math.nan
    training_loss: float = math.nan
    validation_loss: float = math.nan


def trainer_state(folder: Path) -> TrainerState:
    """A checkpoint's `trainer_state.json` (Hugging Face's `Trainer`), or infoflow's manifest next to it; or empty."""
    entries = _read(folder / TRAINER_STATE)
    return _of_trainer(entries) if entries else _of_manifest(_read(folder.parent / MANIFEST), folder.name)


def listed(home: Path) -> dict[str, dict[str, str]] | None:
    """The checkpoints in a folder's manifest, by name, with the SHA-256 of their files; None: no manifest."""
    if not (home / MANIFEST).is_file():
        return None
    entries = {_folder(entry): entry.get("files") for entry in _snapshots(_read(home / MANIFEST))}
    return {name: files if isinstance(files, dict) else {} for name, files in entries.items()}


def _of_manifest(manifest: Mapping[str, Any], name: str) -> TrainerState:
    entry = next((entry for entry in _snapshots(manifest) if _folder(entry) == name), None)
    if entry is None:
        return TrainerState()
    schedule = manifest.get("schedule")
    steps = [step for step in schedule if _count(step)] if isinstance(schedule, list) else []
    return TrainerState(
        step=_count(entry.get("update")),
        updates=max(steps, default=None),
        tokens=_number(entry.get("tokens")),
        lr=_number(entry.get("learning_rate")),
        training_loss=_number(entry.get("loss")),
    )


def _snapshots(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = manifest.get("snapshots")
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and _count(entry.get("update")) is not None]


def _folder(entry: Mapping[str, Any]) -> str:
    return f"step-{entry['update']:08}"


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        return read_object(path)
    except (OSError, ValueError, RecursionError):
        return {}


def _of_trainer(entries: Mapping[str, Any]) -> TrainerState:
    step = _count(entries.get("global_step"))
    logs = entries.get("log_history")
    logs = [line for line in logs if isinstance(line, dict)] if isinstance(logs, list) else []
    before = [line for line in logs if step is None or _number(line.get("step")) <= step]
    tokens = _number(entries.get("num_input_tokens_seen"))
    return TrainerState(
        step=step,
        updates=_count(entries.get("max_steps")) or None,
        tokens=tokens if tokens > 0 or step == 0 else math.nan,  # 0: `Trainer` did not count tokens
        lr=_newest(before, "learning_rate"),
        training_loss=_newest(before, "loss"),
        validation_loss=_newest(before, "eval_loss"),
    )


def _newest(lines: list[Mapping[str, Any]], name: str) -> float:
    return next((_number(line[name]) for line in reversed(lines) if name in line), math.nan)


def _number(value: Any) -> float:
    """A value as a finite float; NaN if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if abs(value) < _MOST else math.nan


def _count(value: Any) -> int | None:
    """A number of updates; None for anything else, or for an impossibly large number."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_UPDATES else None
