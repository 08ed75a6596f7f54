"""Every table and setting of a plan with wrong types and values; files that are no plan.

`train NOTHING --plan plan.toml` reads the plan, and then refuses the objective: so an accepted plan costs nothing.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

from cases import Case, World, written

from infoflow.foundation import describe_setting
from infoflow.studies import StudyPlan

_VALUES = {
    "minus one": "-1",
    "nan": "nan",
    "inf": "inf",
    "-inf": "-inf",
    "10**20": "1" + "0" * 20,
    "10**400": "1" + "0" * 400,
    "10**5000": "1" + "0" * 5000,
    "1e308": "1e308",
    "list of minus one": "[-1]",
    "list of lists": "[[]]",
    "list of words": '["none"]',
    "long list": f"[{'0,' * 20_000}]",
    "table": "{ x = 1 }",
    "empty table": "{}",
    "date": "2026-01-01",
    "time": "07:32:00",
    "word": '"none"',
    "long text": f'"{"x" * 5000}"',
    "control": '"\\u0000\\u001b[31m"',
    "false": "false",
    "hex": "0xffffffffffffffffff",
}
_FILES: dict[str, tuple[str | bytes, str]] = {
    "binary": (bytes(range(256)), "UTF-8"),
    "UTF-16": ("seeds = [0]".encode("utf-16"), "UTF-8"),
    "open list": ("seeds = [", "TOML"),
    "open text": ('title = "x', "TOML"),
    "twice": ("[corpus]\n[corpus]\n", "TOML"),
    "two values": ("seeds = [0]\nseeds = [1]\n", "TOML"),
    "JSON": ('{"seeds": [0]}', "TOML"),
    "YAML": ("seeds:\n - 0\n", "TOML"),
    "no value": ("title =\n", "TOML"),
    "NUL": ("title = \x00\n", "TOML"),
    "escape": ("\x1b[31m\n", "TOML"),
    "dotted": ("corpus.name.first = 1\n", "corpus.name"),
    "array of tables": ("[[corpus]]\nname = 'x'\n", "corpus"),
    "deep": (f"seeds = {'[' * 5000}", "nests"),
    "deep tables": (f"[{'a.' * 5000}a]\n", "no setting a"),
    "unknown table": ("[corpsu]\nname = 'x'\n", "corpsu"),
    "unknown long": (f"{'x' * 5000} = 1\n", "xxx"),
    "unknown control": ('"\\u001b[31m" = 1\n', "no setting"),
    "unknown empty": ('"" = 1\n', "no setting"),
    "inner table": ("[corpus.inner]\nx = 1\n", "corpus.inner"),
    "capital": ("[Corpus]\nname = 'x'\n", "Corpus"),
    "huge": ("# " + "x" * 2_000_000, "1,000,000"),
    "private": ("__class__ = 1\n", "__class__"),
    "method": ("to_json = 1\n", "to_json"),
}


def settings(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All settings and tables with their annotations."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        yield f"{prefix}{name}", hint
        if dataclasses.is_dataclass(hint):
            yield from settings(hint, f"{prefix}{name}.")  # type: ignore[arg-type]


def plan_cases(_: World) -> Iterator[Case]:
    for setting, hint in settings(StudyPlan):
        wanted = "table" if dataclasses.is_dataclass(hint) else describe_setting(hint)
        for name, value in _VALUES.items():
            if not _fits(setting, wanted, name):
                named = "plan.toml" if name == "10**5000" else setting.split(".")[-1]
                yield _case(f"{setting} {name}", f"{setting} = {value}\n", "" if "objectives" in setting else named)
    for name, (content, named) in _FILES.items():
        yield _case(f"file {name}", content, named)
    for name, make in _OTHERS.items():
        yield Case(f"file {name}", ["study", "plan.toml"], "plan.toml", make)
    yield Case("file empty", ["train", "nothing", "--plan=plan.toml"], "nothing", written(plan__toml=""))


# Names that only the work itself knows: each is refused there (`study`), which a training of nothing does not reach.
_NAMES = ("analysis.tables", "checkpoints.light", "checkpoints.heavy", "probing.tasks")


def _fits(setting: str, wanted: str, name: str) -> bool:
    """What a setting in fact takes."""
    text = wanted in ("text", "text that is not empty")
    return (
        (text and name == "word")
        or (wanted == "true or false" and name == "false")
        or (wanted == "table" and name == "empty table")
        or (name == "list of words" and setting in _NAMES)
        or (name == "minus one" and setting in ("retrieval.refresh_every", "retrieval.stale_refresh"))
        or (name == "empty table" and setting == "variants")
    )


def _case(name: str, content: str | bytes, named: str) -> Case:
    return Case(name, ["train", "nothing", "--plan=plan.toml"], named, written(plan__toml=content))


def _plan(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        make(folder / "plan.toml")

    return prepare


_OTHERS = {
    "folder": _plan(os.mkdir),
    "pipe": _plan(os.mkfifo),
    "loop": _plan(lambda path: path.symlink_to("plan.toml")),
    "device": _plan(lambda path: path.symlink_to("/dev/zero")),
    "missing": _plan(lambda path: None),
}
