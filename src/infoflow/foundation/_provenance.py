"""The origin of a number: content keys, versions, hardware, command, time, and the user's own Python files."""

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ._errors import UserError

LATER = {"later": True}
"""Metadata of a dataclass field that was added in a later version.

A field with its default value is not part of a key, so that earlier results are found again.
"""

OWN_CODE = "own_code"
"""Class attribute with the digest of the user's file that defines the class; the digest is part of a key."""


def digest(value: Any) -> str:
    """A hash of a JSON-like value (dataclasses, mappings, sequences, paths and scalars) as sixteen hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path | str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def named_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that belong in a key, by name: all except `LATER` ones with their default value."""
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if not (field.metadata.get("later") and getattr(value, field.name) == field.default)
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        code = getattr(value, OWN_CODE, "")
        return named_fields(value) | ({OWN_CODE: code} if code else {})
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no content key")


# Reduces paths to names, since folder names reveal users and projects in shared files.
# A path in running text, including Windows paths: absolute, in the home folder, or with a leading dot; no HTML end tag.
_IN_TEXT = re.compile(
    r"(?<![\w/\\:.~])(?!(?<=<)/[A-Za-z][\w-]*>)(?:[A-Za-z]:[/\\]|~[\w.-]*/|\.{1,2}/|/|\\\\)[^\s'\"`,;:()<>|]+"
)
_START = r"(?:[A-Za-z]:[/\\]|~[\w.-]*/|/|\.{1,2}/)."
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def without_folders(value: Any, anonymous: bool = False) -> Any:
    """The JSON-like value with every path in its texts reduced to the last name, or to an ellipsis if `anonymous`.

    A text that is a path, a list of paths between commas, or `name=path` is treated as a whole, so that spaces in
    folder names do not matter; in running text a path ends at a space.

    >>> without_folders({"corpus": "/home/jane/secret project/a.en,/home/jane/a.fr", "width": 64})
    {'corpus': 'a.en,a.fr', 'width': 64}
    """
    if isinstance(value, str):
        return _text(value, anonymous)
    if isinstance(value, Mapping):
        return {
            _text(name, anonymous) if isinstance(name, str) else name: without_folders(inner, anonymous)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_folders(inner, anonymous) for inner in value]
    return value


def absolute(path: str | Path) -> Path:
    """The absolute path; a link keeps its own name."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (pathlib's `resolve` follows links)


def command_without_folders(command: str) -> str:
    """The command line with the folders removed from file names in its arguments."""
    try:
        parts = shlex.split(command)
    except ValueError:
        return _text(command, anonymous=False)
    return shlex.join([_argument(part) for part in parts])


_GENERIC = re.compile(r"models?|final|best|last|latest|checkpoints?|snapshots?|")
_NUMBERED = re.compile(r"(seed|step|epoch|checkpoint|keep)[-_]?\d+")  # informative, but does not say which model it is


def model_name_of(path: str | Path, parts: int = 1) -> str:
    """The name of a model: the last part of its path that is not generic, with seed and update; a link keeps its name.

    >>> model_name_of("/home/jane/minilm/model"), model_name_of("/models/small.gguf")
    ('minilm', 'small')
    >>> model_name_of("/home/jane/runs/models/masked-lm/seed-0"), model_name_of("someone/tiny@step1")
    ('masked-lm/seed-0', 'tiny@step1')

    Args:
        path: Where the model is: a folder, a file, or a name on the model hub.
        parts: Number of parts to keep, so that the names of several models differ.
    """
    whole = absolute(path) if _exists(str(path)) or isinstance(path, Path) else Path(path)
    found: list[str] = []
    for part in (one for one in reversed(whole.parts) if not _GENERIC.fullmatch(one)):
        found.insert(0, part)
        parts -= not _NUMBERED.fullmatch(part)
        if not parts:
            break
    return "/".join(found).removesuffix(".gguf").lstrip("/") or whole.name


def name_of(path: str) -> str:
    """The last name of a path; other texts, and names on the model hub, stay unchanged."""
    bare = path.rstrip("/\\")
    last = re.split(r"[/\\]", bare)[-1]
    if _GENERIC.fullmatch(last) or _NUMBERED.fullmatch(last):
        last = "/".join([part for part in re.split(r"[/\\]", bare) if part not in ("", ".", "..", "~")][-2:])
    return last if last not in ("", ".", "..", "~") else "."


def _argument(part: str) -> str:
    option, equals, value = part.partition("=")
    if equals and option.startswith("-"):
        return f"{option}={_argument(value)}"
    return ",".join(name_of(one) if _is_path(one) else one for one in part.split(","))


def _is_path(text: str) -> bool:
    if "://" in text or not re.search(r"[/\\]", text) or "\n" in text:
        return False
    if re.match(r"(?:[A-Za-z]:[/\\]|~|\.{1,2}[/\\]|[/\\])", text):
        return True
    return not _HUB_NAME.fullmatch(text) or _exists(text)


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def _text(text: str, anonymous: bool) -> str:
    for folder in (str(Path.home()), str(Path.cwd())):
        if len(folder) > 1:
            text = re.sub(rf"{re.escape(folder)}(?=[/\\\\])", "~", text)
    name = (lambda path: "…") if anonymous else name_of
    pieces = text.split(",")
    is_list = all(re.match(_START, piece) for piece in pieces)
    # A path, not a sentence that begins with one.
    if is_list and (len(pieces) > 1 or not re.search(r"[/\\][^/\\]*[.:;] ", text)):
        return ",".join(map(name, pieces))
    return _IN_TEXT.sub(lambda match: name(match[0]), text)


_PACKAGES = (
    *("torch", "transformers", "tokenizers", "datasets", "accelerate", "numpy", "scipy", "scikit-learn", "pandas"),
)


def provenance() -> dict[str, Any]:
    """Versions of infoflow and its dependencies, the hardware, the command and the time (UTC), as plain JSON."""
    return {
        "infoflow": version("infoflow"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "command": command_line(sys.argv, _main_module()),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def public_provenance() -> dict[str, Any]:
    """`provenance` without the command, which names the user's files; for data that is shared."""
    return {name: value for name, value in provenance().items() if name != "command"}


def command_line(arguments: Sequence[str], module: str = "") -> str:
    """The command that runs a program with these arguments again, quoted for a shell.

    Args:
        arguments: `sys.argv`, the program first.
        module: Its module name if it was started by `python -m`.
    """
    program = arguments[0]
    if not program:  # typed at Python's prompt
        return ""
    if module and module != "__main__":
        start = ["python", "-m", module.removesuffix(".__main__")]
    elif program.endswith(".py"):
        start = ["python", program]
    else:
        start = [Path(program).name]
    return shlex.join([*start, *arguments[1:]])


def _main_module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else ""


@cache
def version(package: str) -> str:
    """The installed version of a package, or `"absent"`."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@cache
def processor() -> str:
    """The processor's name, which Linux hides from `platform.processor`."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


_LONGEST_TEXT = 300


def run_python_file(path: Path | str) -> ModuleType:
    """The module that a user's own Python file defines. **The file's code is executed**: name only files you trust.

    It can import modules in its folder. Every call runs it again.
    """
    path = Path(path)
    if path.suffix != ".py":
        raise UserError(f"A file with your own code must end in .py. Got {path}. Name a Python file.")
    if not path.is_file():
        raise UserError(f"There is no file {path} (current folder: {Path.cwd()}). Name a Python file.")
    name = f"infoflow_user_{digest(str(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    own_folder, here = str(path.resolve().parent), Path.cwd()
    sys.path.insert(0, own_folder)
    sys.modules[name] = module  # dataclasses and pickle look up their classes there
    try:
        spec.loader.exec_module(module)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a file that exits would end the process silently
        raise UserError(
            f"{path} cannot be run: {described_in_file(error, path)}. Correct it; `python {path}` shows where."
        ) from error
    finally:
        os.chdir(here)  # a file may change its working folder; the command's paths refer to this one
        if own_folder in sys.path:
            sys.path.remove(own_folder)
    return module


def own_module(source: Path | str, kind: str) -> tuple[ModuleType, Path]:
    """Load the user's own code from a Python file, or from an installed package's entry point in `infoflow.KIND`.

    **The code is executed**: name only what you trust.
    """
    name = str(source)
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name) or Path(name).exists():
        return run_python_file(source), Path(source)
    found = {one.name: one for one in importlib.metadata.entry_points(group=f"infoflow.{kind}")}
    if name not in found:
        known = f"installed: {', '.join(found)}" if found else "no installed package has one"
        raise UserError(
            f"A file with your own code must end in .py. Got {name}, which is not an entry point of the group "
            f"infoflow.{kind} either ({known}). Name a Python file."
        )
    try:
        module = found[name].load()
    except Exception as error:
        raise UserError(
            f"The entry point {name} ({found[name].value}) cannot be loaded: {error_text(error)}."
        ) from error
    if not isinstance(module, ModuleType) or not module.__file__:
        raise UserError(f"The entry point {name} must name a module. Got {found[name].value}.")
    return module, Path(module.__file__)


def described_in_file(error: BaseException, path: Path) -> str:
    """An error from a user's code, with the line of the file at which it occurred."""
    lines, step = [], error.__traceback__
    while step is not None:
        if Path(step.tb_frame.f_code.co_filename) == path:
            lines.append(step.tb_lineno)
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{error_text(error)}"


def error_text(error: BaseException) -> str:
    """Type and message of an error from a user's code, in at most 300 characters."""
    try:
        text = str(error).strip().rstrip(".")
    except Exception:  # its own __str__ raises
        text = ""
    text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
