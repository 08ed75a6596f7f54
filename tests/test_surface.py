"""The frozen surface: commands with their options, and public names. Change surface.txt on purpose.

.venv/bin/python tests/test_surface.py > tests/surface.txt
"""

import importlib
import inspect
from pathlib import Path

STORED = Path(__file__).with_name("surface.txt")
ROOMS = (
    "foundation", "results", "corpus", "models", "architectures", "objectives", "flow", "representations", "heads",
    "probing", "training", "dynamics", "pruning", "alignment", "over_training", "findings", "report", "engine",
    "studies", "cli", "adaptation", "retrieval", "evidence", "explorer",
)  # fmt: skip


def surface() -> list[str]:
    """One line per command, then one per public name."""
    import infoflow
    from infoflow.cli import app

    lines = [*_commands(app, "infoflow"), "", *(f"infoflow.{name}" for name in infoflow.__all__)]
    for room in ROOMS:
        module = importlib.import_module(f"infoflow.{room}")
        names = [n for n, value in vars(module).items() if not n.startswith("_") and not inspect.ismodule(value)]
        lines += ["", *(f"infoflow.{room}.{name}" for name in sorted(names))]
    return lines


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


if __name__ == "__main__":
    print("\n".join(surface()))
