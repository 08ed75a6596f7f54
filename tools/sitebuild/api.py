"""API pages, one per room, from the exports of its `__init__`; griffe reads the source, nothing is imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

PACKAGE = "infoflow"
HIDDEN = ("cli", "command")  # their names are commands
SUBJECTS = "subjects"


@dataclass(frozen=True, kw_only=True, slots=True)
class Name:
    """A public name, where it is exported and where it is defined."""

    room: str
    name: str
    target: str  # dotted path of its definition
    docstring: str
    kind: str
    home: str  # the room that it is documented in: that of its definition, where users can import it from there

    @property
    def path(self) -> str:
        return f"{PACKAGE}.{self.room}.{self.name}"


@cache
def package(source: Path) -> griffe.Module:
    """The package as griffe reads it."""
    loader = griffe.GriffeLoader(search_paths=[source])
    loaded = loader.load(PACKAGE)
    loader.resolve_aliases()
    assert isinstance(loaded, griffe.Module)
    return loaded


def rooms(source: Path) -> list[str]:
    """The rooms that have an API page, by name: the core's, and the parts of subjects with public names."""
    core = [name for name, module in package(source).modules.items() if _is_room(module) and name != SUBJECTS]
    subjects = package(source)[SUBJECTS].modules
    parts = [f"{SUBJECTS}.{one}.{part}" for one in subjects for part, room in subjects[one].modules.items()
             if _is_room(room)]  # fmt: skip
    return sorted([*core, *(part for part in parts if public_names(source, part))])


def _is_room(module: griffe.Module) -> bool:
    is_settings = module.name == "settings"
    return (module.is_init_module or is_settings) and not module.name.startswith("_") and module.name not in HIDDEN


def public_names(source: Path, room: str) -> list[Name]:
    """What the room's `__init__` exports as `from ._file import name as name`, in its order.

    Then what the package's own `__init__` imports from this room, and the plans of settings.

    As for type checkers, `from ._file import name` exports nothing: other rooms import such a name, users do not.
    """
    module, path = package(source)[room], source / PACKAGE / room.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names = [*_exports(file)]
    names += [one for home, one in _top_level(source).values() if home == room and one not in names]
    if not path.is_dir():  # the settings of a subject
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names += [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Plan")]
    return [_name(source, room, name, module[name]) for name in names]


@cache
def _exports(file: Path) -> tuple[str, ...]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return tuple(one.name for one in imported if one.asname == one.name)


def _name(source: Path, room: str, name: str, member: griffe.Object | griffe.Alias) -> Name:
    target = member
    while isinstance(target, griffe.Alias):
        target = target.target
    docstring = target.docstring.value if target.docstring else ""
    home = _home(source, room, name, target.path)
    return Name(room=room, name=name, target=target.path, docstring=docstring, kind=target.kind.value, home=home)


def _home(source: Path, room: str, name: str, target: str) -> str:
    first, *rest = target.split(".")[1:]
    defined = ".".join((first, *rest[:2])) if first == SUBJECTS else first
    file = source / PACKAGE / defined.replace(".", "/") / "__init__.py"
    return defined if file.is_file() and name in _exports(file) else room


def pages(source: Path, schemas: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Name and text of every API page. `schemas` has the documentation of table schemas by path."""
    yield "index.md", _index(source)
    with_tables = {path.removeprefix(f"{PACKAGE}.").rpartition(".")[0] for path in schemas}
    for room in sorted({*rooms(source), *with_tables}):
        yield f"{room}.md", _page(source, room, schemas)


def _index(source: Path) -> str:
    lines = [
        "# API by room",
        "",
        "The names on these pages are public; all else may change without notice. A name is on one page, that of the "
        "room that defines it. Tables follow the names.",
        "",
        "| room | holds |",
        "|---|---|",
    ]
    for room in rooms(source):
        first = _first_line(package(source)[room])
        lines.append(f"| [`infoflow.{room}`]({room}.md) | {first} |")
    lines += ["", "## At the top level", "", "`import infoflow` gives these names, each the same as in its room.", ""]
    homes = {(room, one.name): one.home for room in rooms(source) for one in public_names(source, room)}
    for name, (room, inner) in sorted(_top_level(source).items()):
        if room:
            lines.append(f"- [`infoflow.{name}`][{PACKAGE}.{homes[room, inner]}.{inner}]")
        else:
            lines.append(f"- [`infoflow.{name}`]({_short(source, name)}.md), a room")
    return "\n".join([*lines, ""])


def _short(source: Path, name: str) -> str:
    """The page of a room that the top level names, which may be the short name of a subject's."""
    return next((room for room in rooms(source) if room in (name, *_targets(source, name))), name)


def _targets(source: Path, name: str) -> list[str]:
    text = source / PACKAGE / f"{name}.py"
    return [line.split()[1].partition(".")[2] for line in text.read_text(encoding="utf-8").splitlines()
            if line.startswith("from ")] if text.is_file() else []  # fmt: skip


@cache
def _top_level(source: Path) -> dict[str, tuple[str, str]]:
    """Names that the package's own `__init__` imports for type checkers: room ("" for a room itself) and name there."""
    tree = ast.parse((source / PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname: (node.module or "", alias.name) for node in imports for alias in node.names if alias.asname}


def _first_line(module: griffe.Object | griffe.Alias) -> str:
    assert module.docstring, f"{module.path} has no docstring"
    return module.docstring.value.split("\n\n")[0].replace("\n", " ")


def _page(source: Path, room: str, schemas: dict[str, str]) -> str:
    module = package(source)[room]
    names = public_names(source, room)
    lines = [f"# infoflow.{room}", "", module.docstring.value if module.docstring else "", ""]
    for name in names:
        if name.home == room and name.path not in schemas:
            lines += [f"::: {name.path}", ""]
    for path, described in schemas.items():
        if path.startswith(f"{module.path}."):
            lines += [f"## {path.rsplit('.', 1)[1]} {{#{path}}}", "", described, ""]
    if elsewhere := [name for name in names if name.home != room]:
        links = ", ".join(f"[`{n.name}`][{PACKAGE}.{n.home}.{n.name}]" for n in elsewhere)
        lines += [f"Also importable from here: {links}.", ""]
    return "\n".join(lines)
