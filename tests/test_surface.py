"""The frozen surface: commands with their options, and public names. Change surface.txt on purpose.

.venv/bin/python tests/test_surface.py > tests/surface.txt
"""

import ast
import importlib
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_name("surface.txt")
SOURCES = ROOT / "src" / "infoflow"
SHORT = {
    "adaptation": "subjects.adaptation.measures",
    "alignment": "subjects.alignment.measures",
    "detached": "subjects.detached.measures",
    "dynamics": "subjects.allocation.measures",
    "experts": "subjects.experts.measures",
    "evidence": "subjects.retrieval.measures",
    "explorer": "subjects.explorer.server",
    "lenses": "subjects.lenses.measures",
    "neurons": "subjects.neurons.measures",
    "head_weights": "subjects.head_weights.measures",
    "over_training": "subjects.over_training.measures",
    "patching": "subjects.patching.measures",
    "probing": "subjects.probing.measures",
    "pruning": "subjects.pruning.measures",
    "retrieval": "subjects.retrieval.models",
    "routes": "subjects.routes.measures",
    "sinks": "subjects.sinks.measures",
    "spectra": "subjects.spectra.measures",
}
"""Rooms of subjects that have a short name."""
PARTS = ("claims", "figures", "objectives", "settings", "stages", "training")
ROOMS = [
    "foundation", "results", "corpus", "models", "architectures", "objectives", "flow", "representations", "heads",
    "training", "findings", "report", "engine", "studies", "cli", *SHORT,
    *(f"subjects.{path.parent.name}.{path.stem}" for path in sorted((SOURCES / "subjects").glob("*/*"))
      if path.stem in PARTS),
]  # fmt: skip


def surface() -> list[str]:
    """One line per command, then one per public name."""
    import infoflow
    from infoflow.cli import app

    lines = [*_commands(app, "infoflow"), "", *(f"infoflow.{name}" for name in infoflow.__all__)]
    for room in ROOMS:
        lines += ["", *(f"infoflow.{room}.{name}" for name in sorted(_exported(room)))]
    return lines


def _exported(room: str) -> list[str]:
    """Names that the room's `__init__` imports as themselves; without `as` they are for other rooms alone.

    A room in one file exports its classes.
    """
    path = SOURCES / SHORT.get(room, room).replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not path.is_dir()]
    return [one.name for one in imported if one.asname == one.name] + [c for c in classes if c.endswith("Plan")]


def _commands(app, path: str) -> list[str]:
    """The command with its arguments and options, and those below it."""
    lines = []
    for name in sorted(name for name in app if not name.startswith("-")):
        command = app[name]
        if command.default_command is None:
            lines += _commands(command, f"{path} {name}")
            continue
        arguments = [argument for argument in command.assemble_argument_collection() if argument.parse]
        shown = [" ".join(argument.names) for argument in arguments if argument.show]
        lines.append(f"{path} {name} {' '.join(shown)}".rstrip())
    return lines


def test_commands_options_and_public_names_are_the_stored_ones():
    assert surface() == STORED.read_text(encoding="utf-8").splitlines()


def test_pages_examples_and_experiments_use_public_names_alone():
    folders = (ROOT / name for name in ("docs", "examples", "experiments"))
    paths = [ROOT / "README.md", *(path for folder in folders for path in folder.rglob("*"))]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix in (".py", ".md", ".ipynb")]
    used = {name for text in texts for name in _used(text)}
    assert used - set(STORED.read_text(encoding="utf-8").split()) == set()


def _used(text: str) -> list[str]:
    """Names of rooms in a text: `infoflow.room.name`, or imported from a room."""
    found = []
    for room in ROOMS:
        imports = re.findall(rf"from infoflow\.{room} import (\([^)]*\)|.*)", text)
        names = {*re.findall(rf"infoflow\.{room}\.(\w+)", text), *re.findall(r"\w+", " ".join(imports))}
        shared = vars(importlib.import_module(f"infoflow.{room}"))
        found += [f"infoflow.{room}.{name}" for name in names if not inspect.ismodule(shared.get(name, inspect))]
    return found


if __name__ == "__main__":
    print("\n".join(surface()))
