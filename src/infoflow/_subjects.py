"""Subjects: the folders of `infoflow.subjects`, each of which adds parts to the core.

The core never imports a subject. It asks what the subjects provide, and gets nothing from a folder that is not there.
"""

import pkgutil
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

SUBJECTS = "infoflow.subjects"


@cache
def parts(name: str) -> tuple[ModuleType, ...]:
    """The subjects' modules called `name`, in alphabetical order; for "" the subjects themselves."""
    subjects = [f"{SUBJECTS}.{one.name}" for one in pkgutil.iter_modules(import_module(SUBJECTS).__path__)]
    paths = [f"{subject}.{name}" for subject in subjects] if name else subjects
    return tuple(import_module(path) for path in paths if find_spec(path) is not None)


def provided(part: str, name: str) -> list[Any]:
    """The values called `name` in this part, from all subjects.

    >>> [command for commands in provided("", "COMMANDS") for command in commands if command.startswith("p")]
    ['prune']
    """
    return [getattr(module, name) for module in parts(part) if hasattr(module, name)]
