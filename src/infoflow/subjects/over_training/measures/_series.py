"""The checkpoints of one training, in order, also from a local folder."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, file_digest
from infoflow.models import is_adapter_folder
from infoflow.training import select_steps

from ._checkpoint_names import (
    CheckpointName,
    PublicSuite,
    TrainerState,
    checkpoint_name,
    checkpoint_names,
    listed,
    trainer_state,
)
from ._places import WEIGHTS, FolderPlace, Place, weight_paths

MAIN = "main"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SuiteCheckpoint:
    """One checkpoint: its location and its metadata."""

    name: str  # name of its folder or revision
    update: int
    place: Place
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
    lost: bool = False  # whether a manifest recorded it and its content


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CheckpointSeries:
    """Checkpoints of one training by ascending update; two may claim the same update."""

    name: str
    checkpoints: tuple[SuiteCheckpoint, ...]
    missing: tuple[Missing, ...] = ()
    suite: PublicSuite | None = None
    notes: tuple[str, ...] = ()

    @property
    def updates(self) -> int:
        """Number of updates of the whole training: as recorded, from its suite, or else the last checkpoint's."""
        reported = [one.state.updates for one in self.checkpoints if one.state.updates]
        last = max(one.update for one in self.checkpoints)
        known = max([*reported, *(self.suite.steps if self.suite else ())], default=last)
        return known if known >= last else last


def checkpoint_of(name: CheckpointName | None, text: str, place: Place, state: TrainerState,
                  suite: PublicSuite | None, by_hand: Mapping[str, int]) -> SuiteCheckpoint | None:  # fmt: skip
    """A checkpoint at its recorded update, or else at the update in its name; None if neither is known.

    Its tokens are those counted in training, else those in the name, else updates times the suite's tokens per update
    if known; never guessed.
    """
    named = None if name is None else name.step
    update = named if state.step is None or text in by_hand else state.step
    if update is None:
        return None
    tokens = state.tokens
    if math.isnan(tokens) and name is not None:
        tokens = name.tokens
    if math.isnan(tokens) and suite is not None and suite.tokens_per_update:
        tokens = float(update * suite.tokens_per_update)
    return SuiteCheckpoint(
        name=text,
        update=update,
        place=place,
        tokens=0.0 if update == 0 else tokens,
        named=named,
        by_hand=text in by_hand,
        state=state,
    )


def branched(
    name: str,
    found: Sequence[tuple[CheckpointName, SuiteCheckpoint]],
    more: Sequence[SuiteCheckpoint],
    choice: str,
    source: str,
    **facts: Any,
) -> list[CheckpointSeries]:
    """One series, or one for each branch ("ingredient") of a later stage; stages are ordered by their tokens.

    Each also has the checkpoints in `more`; `facts` are further fields of the series.
    """
    stages = sorted({name.stage for name, _ in found})
    branches = sorted({name.ingredient for name, _ in found if name.ingredient}) or [0]
    of_branch = [
        _one_axis([pair for pair in found if pair[0].ingredient in (0, branch)], stages) for branch in branches
    ]
    return [
        CheckpointSeries(
            name=name if len(branches) == 1 else f"{name}-ingredient{number}",
            checkpoints=tuple(chosen([*own, *more], choice, source)),
            **facts,
        )
        for number, own in enumerate(of_branch, start=1)
    ]


def _one_axis(found: Sequence[tuple[CheckpointName, SuiteCheckpoint]], stages: Sequence[int]) -> list[SuiteCheckpoint]:
    if len(stages) < 2:
        return [checkpoint for _, checkpoint in found]
    if untold := [name.text for name, checkpoint in found if math.isnan(checkpoint.tokens)]:
        raise UserError(
            "Each stage of a training counts its steps from 0, so checkpoints of several stages are ordered by "
            f"tokens. The name {untold[0]} gives no number of tokens. Choose checkpoints of one stage."
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
    """The checkpoints selected by `all`, `log:K` or `A..B`, by update; two checkpoints of one update stay together."""
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


# The checkpoints in a local folder.

_INSIDE = ("snapshots", "checkpoints")  # subfolders of a training's folder
_CONFIG = "config.json"
_ADAPTED = (
    "its folder holds an adapter, not a whole model: merge it with peft, merge_and_unload() and save_pretrained()"
)


def folder_series(folder: Path, choice: str, steps: Mapping[str, int]) -> list[CheckpointSeries]:
    """The series in a folder with `checkpoint-*`, `step-*` or similar; in a study's run folder, one for each model.

    A model in the folder itself is `main`: another name of a checkpoint with the same weights, or a checkpoint if its
    `trainer_state.json` or `steps` gives its step.
    """
    if not folder.is_dir():
        raise UserError(f"A series of checkpoints is a folder that holds some, or a hub name. {folder} is a file.")
    homes = _homes(folder)
    if not homes:
        raise UserError(
            f"{folder} holds no checkpoints: no folder checkpoint-*, step-* or the like with config.json and weights. "
            + (
                f"For one checkpoint: infoflow analyze {folder}"
                if (folder / _CONFIG).is_file()
                else "Give the folder that holds them, or a name on the model hub with @all."
            )
        )
    found = [_series(name, home, _root(folder, home), choice, steps, str(folder)) for name, home in homes.items()]
    return [series for own in found for series in own]


def _homes(folder: Path) -> dict[str, Path]:
    """The folders with checkpoints, by the name of their training run."""
    for home in (folder, *(folder / name for name in _INSIDE)):
        if any(_is_checkpoint(path) for path in _subfolders(home)):
            return {_name(folder): home}
    return _of_run(folder) if (folder / "run.json").is_file() else {}


def _of_run(run: Path) -> dict[str, Path]:
    """The training folders with the checkpoints of a study's models, by the models' published names."""
    published = {
        _digests(FolderPlace(path.parent)): str(path.parent.relative_to(run / "models"))
        for path in sorted((run / "models").rglob(_CONFIG), reverse=True)
    }
    found = {}
    for trained in _subfolders(run / "work" / "training"):
        for home in (trained / name for name in _INSIDE):
            if any(_is_checkpoint(path) for path in _subfolders(home)):
                found[published.get(_digests(FolderPlace(trained / "model")), trained.name)] = home
                break
    return dict(sorted(found.items()))


def _digests(place: Place) -> tuple[str, ...]:
    return tuple(file.sha256 for file in place.weight_files())


def _name(folder: Path) -> str:
    """The last part of the path, preceded by the parent folder's name if the folder is called checkpoints."""
    path = folder.resolve()
    return f"{path.parent.name}/{path.name}" if path.name in _INSIDE else path.name


def _subfolders(home: Path) -> list[Path]:
    return sorted(path for path in home.glob("*") if path.is_dir() and not path.name.startswith("."))


def _is_checkpoint(path: Path) -> bool:
    return (path / _CONFIG).is_file() and checkpoint_name(path.name) is not None


def _root(folder: Path, home: Path) -> Path | None:
    root = folder if home == folder else home.parent
    root = root / "model" if (root / "model" / _CONFIG).is_file() else root
    return root if (root / _CONFIG).is_file() and weight_paths(root) else None


def _series(
    name: str, home: Path, root: Path | None, choice: str, steps: Mapping[str, int], source: str
) -> list[CheckpointSeries]:
    """The checkpoints in one folder; a subfolder with neither a configuration nor a number does not count."""
    known = listed(home)
    paths = {
        path.name: path
        for path in _subfolders(home)
        if (known is None or path.name in known)
        # A folder named as by `Trainer` or infoflow counts even if it is empty.
        and ((path / _CONFIG).is_file() or path.name in steps or re.fullmatch(r"(checkpoint|step)-\d+", path.name))
    }
    if unknown := [each for each in steps if each not in (*paths, MAIN)]:
        raise UserError(f"--steps names no checkpoint in {source}: {unknown[0]}. There are: {', '.join(paths)}.")
    names = {one.text: one for one in checkpoint_names(dict.fromkeys([*paths, *(known or ())]), steps, source)}
    found, missing = [], []
    for text, read in names.items():
        path = home / text
        if why := _fault(path, None if known is None else known.get(text)):
            missing.append(Missing(name=text, update=read.step, why=why, lost=text in (known or ())))
        elif checkpoint := checkpoint_of(read, text, FolderPlace(path), trainer_state(path), None, steps):
            found.append((read, checkpoint))
    notes, main = _main(root, [checkpoint for _, checkpoint in found], steps)
    return branched(name, found, main, choice, source, missing=tuple(missing), notes=tuple(notes))


def _fault(path: Path, written: Mapping[str, str] | None) -> str:
    """Why a folder holds no checkpoint, or how it differs from what its training has `written`; "" if neither."""
    if is_adapter_folder(path):
        return _ADAPTED
    if not path.is_dir():
        return "its training saved it, but it no longer exists"
    if not ((path / _CONFIG).is_file() and weight_paths(path)):
        return "its folder holds no config.json and weights"
    if not written:
        return ""
    found = {file.name: file.sha256 for file in FolderPlace(path).weight_files()}
    found[_CONFIG] = file_digest(path / _CONFIG)
    for name, digest in written.items():
        if (name == _CONFIG or name.endswith(WEIGHTS)) and found.get(name) != digest:
            return f"{name} is {'not what its training wrote (another checksum)' if name in found else 'gone'}"
    return ""


def _main(
    root: Path | None, checkpoints: list[SuiteCheckpoint], steps: Mapping[str, int]
) -> tuple[list[str], list[SuiteCheckpoint]]:
    """The note on the model saved with the checkpoints, and the model if it is a separate checkpoint."""
    if root is None or any(_digests(one.place) == _digests(FolderPlace(root)) for one in checkpoints):
        return [], []
    return main_checkpoint(FolderPlace(root), trainer_state(root), steps, str(root))


def main_checkpoint(
    place: Place, state: TrainerState, steps: Mapping[str, int], what: str
) -> tuple[list[str], list[SuiteCheckpoint]]:
    """The final model as a checkpoint, or a note if it equals no checkpoint and its step is unknown."""
    name = checkpoint_names([MAIN], steps, what)[0] if MAIN in steps else None
    checkpoint = checkpoint_of(name, MAIN, place, state, None, steps)
    if checkpoint is not None:
        return [], [checkpoint]
    note = (
        f"The model in {what} equals none of its checkpoints, and nothing says which step it is (it may be annealed, "
        f"averaged or tuned), so it is left out. If it is one: --steps {MAIN}=STEP"
    )
    return [note], []
