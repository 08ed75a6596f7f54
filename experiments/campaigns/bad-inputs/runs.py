"""Each file of a run folder damaged, then every command that reads it: one message, or the numbers as before."""

import json
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pandas as pd
from cases import Case, World
from models import HOW, VALUES, damaged

_OF_THE_CLOCK = ("seconds", "cpu_seconds")  # of a model that is trained anew
_COMMANDS = {
    "report": ["report", "run"],
    "findings": ["findings", "run"],
    "dynamics": ["dynamics", "run"],
    "study": ["study", "run/plan.toml", "--out=run", "--processes=1"],
}


def run_cases(world: World) -> Iterator[Case]:
    for file in _kinds(world.study):
        commands = _commands(file)
        for how in HOW:
            for command in commands:
                yield _case(world, f"{file} {how} {command}", command, file, how)
    manifest = json.loads((world.study / "run.json").read_text())
    for key in manifest:
        for name, value in VALUES.items():
            for command in _COMMANDS:
                yield _changed(world, f"run.json {key} {name} {command}", command, key, value)
    yield from _merges(world)


def _kinds(run: Path) -> list[Path]:
    """One file of each kind: names that differ in a key or a number are of one kind."""
    kinds: dict[str, Path] = {}
    for path in sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file()):
        kind = re.sub(r"[0-9a-f]{16}|\d+|masked-lm|causal-lm", "*", str(path))
        kinds.setdefault(kind, path)
    return [path for kind, path in kinds.items() if not kind.startswith(".")]


def _commands(file: Path) -> list[str]:
    if file.parts[0] in ("tables", "run.json"):
        return list(_COMMANDS)
    return ["study"] if file.parts[0] in ("work", "models") else ["report", "study"]


def _case(world: World, name: str, command: str, file: Path, how: str) -> Case:
    def prepare(folder: Path) -> None:
        _copied(world, folder)
        damaged(folder / "run" / file, how)

    return Case(name, _COMMANDS[command], "", prepare, (0, 2), _as_before(world), writes=True, limit=120)


def _changed(world: World, name: str, command: str, key: str, value: object) -> Case:
    def prepare(folder: Path) -> None:
        _copied(world, folder)
        path = folder / "run" / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    return Case(name, _COMMANDS[command], "", prepare, (0, 2), _as_before(world), writes=True, limit=120)


def _copied(world: World, folder: Path) -> None:
    shutil.copytree(world.study, folder / "run")
    shutil.copy(world.plan, folder / "run" / "plan.toml")


def _as_before(world: World) -> Callable[[Path, str, str], str | None]:
    def check(folder: Path, out: str, error: str) -> str | None:
        for path in sorted((folder / "run" / "tables").glob("*.parquet")):
            fault = other_numbers(path, world.study / "tables" / path.name) if path.is_file() else None
            if fault and "damaged" not in out + error:
                return fault
        return None

    return check


def other_numbers(path: Path, expected: Path, but: Collection[str] = ()) -> str | None:
    """What differs between two tables; a table that cannot be read has no numbers."""
    try:
        found = pd.read_parquet(path)
    except Exception:
        return f"{path.name} stays damaged"
    differing = [*but, *_OF_THE_CLOCK]
    try:
        pd.testing.assert_frame_equal(
            found.drop(columns=differing, errors="ignore"),
            pd.read_parquet(expected).drop(columns=differing, errors="ignore"),
        )
    except AssertionError as error:
        return f"{path.name} holds other numbers: {str(error).splitlines()[0]}"
    return None


def _merges(world: World) -> Iterator[Case]:
    for file in _kinds(world.shard(0)):
        for how in HOW:

            def damage(folder: Path, file: Path = file, how: str = how) -> None:
                damaged(folder / "shard-0" / file, how)

            yield _merge(world, f"merge {file} {how}", damage)
    manifest = json.loads((world.shard(0) / "run.json").read_text())
    for key in manifest:
        for name, value in VALUES.items():
            yield _merge(world, f"merge run.json {key} {name}", _entry(key, value))
    for key in manifest["plan"]["options"]:
        for name, value in VALUES.items():
            plan = {**manifest["plan"], "options": {**manifest["plan"]["options"], key: value}}
            names = frozenset({"model"} if key == "anonymous" else ())  # no model has its name then
            yield _merge(world, f"merge options {key} {name}", _entry("plan", plan), names)
    for key in manifest["plan"]["options"]["measures"]:
        for name, value in VALUES.items():
            options = manifest["plan"]["options"]
            measures = {**options["measures"], key: value}
            plan = {**manifest["plan"], "options": {**options, "measures": measures}}
            yield _merge(world, f"merge measures {key} {name}", _entry("plan", plan, both=True))


def _entry(key: str, value: object, both: bool = True) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for path in [folder / f"shard-{index}" / "run.json" for index in ((0, 1) if both else (0,))]:
            path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    return change


def _merge(world: World, name: str, change: Callable[[Path], None], but: frozenset[str] = frozenset()) -> Case:
    def prepare(folder: Path) -> None:
        for index in (0, 1):
            shutil.copytree(world.shard(index), folder / f"shard-{index}")
        change(folder)

    def check(folder: Path, _: str, __: str) -> str | None:
        table = "head_confidence.parquet"
        return other_numbers(folder / "out" / "tables" / table, world.merged / "tables" / table, but)

    arguments = ["merge", "shard-0", "shard-1", "--out=out", "--log=plain"]
    return Case(name, arguments, "", prepare, (0, 2), check, writes=True, limit=60)
