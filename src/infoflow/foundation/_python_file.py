"""Runs a Python file that the user names, as `python FILE` would."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from ._digest import digest
from ._errors import UserError

_LONGEST_TEXT = 300


def run_python_file(path: Path | str) -> ModuleType:
    """The module that a user's own Python file defines. **The file's code is executed**: name only files you trust.

    It can import modules in its folder. Every call runs it again.

    Raises:
        UserError: The file does not exist, is not a Python file, or raises an error.
    """
    path = Path(path)
    if path.suffix != ".py":
        raise UserError(f"A file with your own code must end in .py. Got {path}. Name a Python file.")
    if not path.is_file():
        raise UserError(f"There is no file {path} (now in {Path.cwd()}). Name a Python file.")
    name = f"infoflow_user_{digest(str(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    beside, here = str(path.resolve().parent), Path.cwd()
    sys.path.insert(0, beside)
    sys.modules[name] = module  # dataclasses and pickle look up their classes there
    try:
        spec.loader.exec_module(module)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a file that exits would end the process silently
        raise UserError(
            f"{path} cannot be run: {told_in_file(error, path)}. Correct it; `python {path}` shows where."
        ) from error
    finally:
        os.chdir(here)  # a file may change its working folder; the command's paths refer to this one
        if beside in sys.path:
            sys.path.remove(beside)
    return module


def told_in_file(error: BaseException, path: Path) -> str:
    """An error from a user's code, with the last line of the file that it passed through."""
    lines, step = [], error.__traceback__
    while step is not None:
        if Path(step.tb_frame.f_code.co_filename) == path:
            lines.append(step.tb_lineno)
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{told_error(error)}"


def told_error(error: BaseException) -> str:
    """Type and message of an error from a user's code, in at most 300 characters."""
    try:
        text = str(error).strip().rstrip(".")
    except Exception:  # its own __str__ raises
        text = ""
    text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
