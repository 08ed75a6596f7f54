"""Reduces paths to names, since folder names reveal users and projects in shared files."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# A path in running text: absolute, in the home folder, or relative with a leading dot; also of Windows; no closing tag.
_IN_TEXT = re.compile(
    r"(?<![\w/\\:.~])(?!(?<=<)/[A-Za-z][\w-]*>)(?:[A-Za-z]:[/\\]|~[\w.-]*/|\.{1,2}/|/|\\\\)[^\s'\"`,;:()<>|]+"
)
_START = r"(?:[A-Za-z]:[/\\]|~[\w.-]*/|/|\.{1,2}/)."
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def without_folders(value: Any, anonymous: bool = False) -> Any:
    """The JSON-like value with every path in its texts reduced to its last name, or to an ellipsis.

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
    """A command line in which arguments name files without folders."""
    try:
        parts = shlex.split(command)
    except ValueError:
        return _text(command, anonymous=False)
    return shlex.join([_argument(part) for part in parts])


def model_name_of(path: str | Path) -> str:
    """The last part of a model's path, with its parent if that part is too generic; a link keeps its own name.

    >>> model_name_of("/home/jane/runs/masked-lm/model"), model_name_of("/models/small.gguf")
    ('masked-lm/model', 'small')
    """
    whole = absolute(path)
    return f"{whole.parent.name}/model" if whole.name == "model" else whole.name.removesuffix(".gguf")


def name_of(path: str) -> str:
    """The last name of a path; other texts, and names on the model hub, stay unchanged."""
    bare = path.rstrip("/\\")
    last = re.split(r"[/\\]", bare)[-1]
    if last in ("model", "") or re.fullmatch(r"(seed|step|checkpoint)-?\d+", last):  # too generic alone
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
