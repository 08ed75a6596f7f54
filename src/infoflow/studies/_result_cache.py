"""The cache of a run's results and weights, in folders named after dependencies; damaged ones are made again."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow import foundation
from infoflow.flow import Failure, agree, is_first, wait_for_all
from infoflow.results import TableSchema, read_table, write_table

Schemas = dict[str, TableSchema]
Part = dict[str, pd.DataFrame]

_FACTS = "facts.json"
_CONTENTS = "tables.json"  # names of a part's tables
_FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Computed:
    tables: Part = field(default_factory=dict)
    failures: Sequence[Failure] = ()


class ResultCache:
    """Results of stages under `folder`: parts of tables and plain values, by stage and content key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._whole = set[Path]()  # parts that this process has checked

    def path(self, stage: str, key: str) -> Path:
        return self.folder / stage / key

    def done(self, stage: str, key: str) -> bool:
        """Whether the part exists; a damaged part is removed, so that it is computed again."""
        path = self.path(stage, key)
        if path in self._whole or not path.exists():
            return path.exists()
        if why := _damage(path):
            foundation.current_display().note(f"{path} is damaged ({why}) and is recreated.")
            self.remove(stage, key)
            return False
        self._whole.add(path)
        return True

    def remove(self, stage: str, key: str) -> None:
        self._whole.discard(self.path(stage, key))
        shutil.rmtree(self.path(stage, key), ignore_errors=True)

    def tables(self, stage: str, key: str, schemas: Schemas, compute: Callable[[], Part]) -> Part:
        """The part's tables, computed if missing; if several processes compute them, the first one's are kept."""
        path = self.path(stage, key)
        if not agree(self.done(stage, key)):
            part = compute()
            if is_first():
                with foundation.sealed_folder(path) as folder:
                    (folder / _CONTENTS).write_text(json.dumps(sorted(part)), encoding="utf-8")
                    for name, frame in part.items():
                        write_table(folder / f"{name}.parquet", frame, schemas[name])
            wait_for_all()
        return self.read(stage, key)

    def missing(self, stage: str, keys: Mapping[str, str]) -> list[str]:
        """Names of `keys` whose part is missing; every process gets the same list."""
        return [name for name, key in keys.items() if not agree(self.done(stage, key))]

    def each_table(
        self, stage: str, keys: Mapping[str, str], schemas: Schemas, compute: Callable[[list[str]], Part | Computed]
    ) -> Part:
        """Tables by name, each of which is a separate part; `compute` is called once with the missing names.

        A table that `compute` leaves out does not apply, and this is cached too. A failed table stays missing; its
        failure is stored (`failures`), and the next call tries again.
        """
        if missing := self.missing(stage, keys):
            given = compute(missing)
            computed = given if isinstance(given, Computed) else Computed(tables=given)
            failed = {failure.table: failure for failure in computed.failures}
            for name in missing:
                self._note(stage, keys[name], failed.get(name))
                if name not in failed:
                    part = {name: computed.tables[name]} if name in computed.tables else {}
                    self.tables(stage, keys[name], schemas, lambda part=part: part)
        return self.read_each(stage, keys)

    def _note(self, stage: str, key: str, failure: Failure | None) -> None:
        """Store a failure, or remove an earlier one."""
        path = self.path(_FAILED, f"{stage}-{key}.json")
        if not is_first():
            return
        if failure is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with foundation.atomic_write(path) as temporary:
            temporary.write_text(json.dumps(asdict(failure)), encoding="utf-8")

    def failures(self, stage: str, keys: Mapping[str, str]) -> list[Failure]:
        paths = [self.path(_FAILED, f"{stage}-{key}.json") for key in keys.values()]
        return [Failure(**facts) for path in paths if isinstance(facts := _json(path), dict)]

    def read_each(self, stage: str, keys: Mapping[str, str]) -> Part:
        return {name: frame for key in keys.values() for name, frame in self.read(stage, key).items()}

    def read(self, stage: str, key: str) -> Part:
        """The tables of an existing part; unlike `tables`, it waits for no other process."""
        return {file.stem: read_table(file).frame for file in sorted(self.path(stage, key).glob("*.parquet"))}

    def facts(self, stage: str, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The part's plain values, computed if missing."""
        path = self.path(stage, key)
        if not agree(self.done(stage, key) and (path / _FACTS).exists()):
            facts = compute()
            if is_first():
                with foundation.sealed_folder(path) as folder:
                    (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
            wait_for_all()
        return self.read_facts(stage, key)

    def read_facts(self, stage: str, key: str) -> dict[str, Any]:
        """The plain values of an existing part."""
        return foundation.read_object(self.path(stage, key) / _FACTS)

    def discard(self, stage: str) -> None:
        """Remove a stage's folders, which can be computed again."""
        if is_first():
            shutil.rmtree(self.folder / stage, ignore_errors=True)


def _damage(path: Path) -> str:
    """Why a part is unusable; "" if it is usable. Parts of earlier versions have no seal that could be checked."""
    if (path / foundation.SEAL).exists():
        return foundation.disagreement(path) or ""
    contents = path / _CONTENTS
    names = _json(contents) if contents.exists() else []
    if not isinstance(names, list):
        return f"{_CONTENTS} cannot be read"
    if (path / _FACTS).exists() and not isinstance(_json(path / _FACTS), dict):
        return f"{_FACTS} cannot be read"
    if missing := [name for name in names if not (path / f"{name}.parquet").exists()]:
        return f"{missing[0]}.parquet is missing"
    try:
        for file in path.glob("*.parquet"):
            read_table(file)
    except foundation.UserError:
        return f"{file.name} cannot be read"
    return ""


def _json(path: Path) -> Any:
    """The file's content; None if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def stacked(parts: Iterable[Part]) -> Part:
    """Concatenate tables of the same name, in the order of the parts."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for part in parts:
        for name, frame in part.items():
            frames.setdefault(name, []).append(frame)
    return {name: pd.concat(each, ignore_index=True) for name, each in frames.items()}


# Trained weights and their copies under `models/`, which are verified byte for byte against training, or made again.
_SUMS = "sums.json"  # file next to the model's folder with the SHA-256 of each of its files and of the training log
_LOG = "../log.jsonl"
_WEIGHTS_FACTS = "training.json"  # in every model folder that infoflow trained


def keep_sums(model: Path) -> None:
    """Record the checksums of the files that training has just written to the folder `model`."""
    with foundation.atomic_write(model.parent / _SUMS) as temporary:
        sums = _sums(model) | {_LOG: foundation.file_digest(model / _LOG)}
        temporary.write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def is_intact(model: Path) -> bool:
    """Whether the folder is as training left it; models of versions without checksums count as intact."""
    if not (model / "model.safetensors").is_file() or not (model / _LOG).is_file():
        return False
    kept = _kept(model)
    if kept is None:
        keep_sums(model)
        return True
    return _holds(model, kept)


def is_published(model: Path, target: Path) -> bool:
    """Whether the trained weights in `model` have a complete copy at `target`."""
    return target.exists() and _holds(target, _of_model(_kept(model)) or _sums(model))


def publish(model: Path, target: Path, name: str) -> None:
    """Copy trained weights to `target`, unless a complete copy exists."""
    if is_published(model, target):
        return
    if target.exists():
        check_target(model, target)
        if _same_training(model, target):
            foundation.current_display().note(f"{target} was damaged: {name} is restored from the trained state.")
    with foundation.atomic_folder(target) as folder:
        shutil.copytree(model, folder, dirs_exist_ok=True)


def check_target(model: Path, target: Path) -> None:
    """Check that a published model would replace nothing but another model of infoflow."""
    if not target.exists() or (target / _WEIGHTS_FACTS).exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if any(_holds(target, {name: kept}) for name, kept in _of_model(_kept(model)).items()):
        return  # damaged remains of a model
    raise foundation.UserError(
        f"{target} would be replaced by a trained model, but infoflow did not write it (it has no {_WEIGHTS_FACTS}). "
        "Move it, or choose another --out."
    )


def discard(model: Path, name: str) -> None:
    """Remove damaged weights, so that training restores them, from its last checkpoint if its log is intact."""
    foundation.current_display().note(
        f"The weights of {name} in {model} differ from the trained ones and are restored."
    )
    kept = _kept(model)
    log_is_whole = kept is not None and _LOG in kept and _holds(model, {_LOG: kept[_LOG]})
    shutil.rmtree(model if log_is_whole else model.parent, ignore_errors=True)
    (model.parent / _SUMS).unlink(missing_ok=True)


def _same_training(first: Path, second: Path) -> bool:
    """Whether two model folders come from the same training, as far as the second one records it."""
    facts = [path / _WEIGHTS_FACTS for path in (first, second)]
    return facts[0].read_bytes() == facts[1].read_bytes() if all(path.is_file() for path in facts) else False


def _sums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): foundation.file_digest(path) for path in files}


def _of_model(kept: Mapping[str, str] | None) -> dict[str, str]:
    return {name: digest for name, digest in (kept or {}).items() if name != _LOG}


def _kept(model: Path) -> dict[str, str] | None:
    try:
        return foundation.read_object(model.parent / _SUMS)
    except (OSError, ValueError):
        return None


def _holds(folder: Path, sums: Mapping[str, str]) -> bool:
    return all(
        (folder / name).is_file() and foundation.file_digest(folder / name) == kept for name, kept in sums.items()
    )
