"""Checks of what users pass in: settings within the limits of their annotations, and arrays."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from ._errors import UserError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor


_MOST_ITEMS = 10_000  # in a list
_MOST_CHARACTERS = 4096  # in a text
_SHOWN = 80  # characters of a value in a message


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of a number or a text; numbers must always be finite, and texts must not contain control characters."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    pattern: str = ""  # a regular expression for the whole text
    like: str = ""  # description of the pattern or of the allowed numbers
    zero: bool = True  # whether a number may be 0
    filled: bool = False  # a text or list must not be empty
    distinct: bool = False  # list items must differ
    file: bool = False  # the text may name a user's file
    own: bool = False  # the text is the user's own word, such as the name of a column

    def hold(self, value: float) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (self.zero or value != 0)
        )

    def __str__(self) -> str:
        """`from 0 to 1`, `above 0, at most 10`, ..."""
        if self.like:
            return self.like
        if self.at_least is not None and self.at_most is not None:
            return f"from {_number(self.at_least)} to {_number(self.at_most)}"
        bounds = {"at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        return ", ".join(f"{word} {_number(bound)}" for word, bound in bounds.items() if bound is not None)


Count = Annotated[int, Limits(at_least=1, at_most=10**9)]
"""A count of at least one."""
Several = Annotated[int, Limits(at_least=2, at_most=10**9)]
"""A count of at least two."""
CountOrNone = Annotated[int, Limits(at_least=0, at_most=10**9)]
"""A count that may be 0, which means none or unlimited."""
Share = Annotated[float, Limits(at_least=0, below=1)]
"""A share below 1, so that something is left."""
Probability = Annotated[float, Limits(at_least=0, at_most=1)]
"""A number from 0 to 1, both included."""
Weight = Annotated[float, Limits(at_least=0, at_most=1e6)]
"""Weight of one term relative to another."""
LearningRate = Annotated[float, Limits(above=0, at_most=10)]
"""A learning rate."""
Seed = Annotated[int, Limits(at_least=0, at_most=2**32 - 1)]
"""A seed that NumPy and scikit-learn accept too."""
Name = Annotated[str, Limits(filled=True, like="that is not empty")]
"""Text that is not empty."""
DistinctNames = Annotated[tuple[str, ...], Limits(filled=True, distinct=True)]
"""A list of different texts that is not empty."""
File = Annotated[str, Limits(file=True)]
"""A user's file, or a name of a text, tokenizer or model; may be empty."""
RequiredFile = Annotated[str, Limits(filled=True, like="that is not empty", file=True)]
"""Like `File`, but not empty."""
OwnWord = Annotated[str, Limits(own=True)]
"""The user's own word, such as the name of a column; may be empty."""
OwnWords = Annotated[tuple[str, ...], Limits(own=True)]
"""Several of the user's own words; may be empty."""
Device = Annotated[
    str, Limits(pattern=r"auto|cpu|mps|(cuda|xpu)(:\d{1,3})?", like="such as auto, cpu, cuda, cuda:1 or mps")
]
"""A device of torch, or auto."""
Threads = Annotated[int, Limits(at_least=1, at_most=1024)]
"""Number of threads or processes on one machine; thousands would overload it."""
Processes = Annotated[int, Limits(at_least=0, at_most=1024)]
"""Number of processes on this machine; 0 if it should start none, as with --cluster."""
MaxLength = Annotated[int, Limits(at_least=3, at_most=10**6)]
"""Maximum number of tokens of a sentence; at least 3, for a start, an end and one token between."""
Inches = Annotated[float, Limits(at_least=2, at_most=20)]
"""The width of a figure in inches."""


def check_settings(settings: Any, section: str = "") -> None:
    """Check the fields of a dataclass against their annotations; `section` precedes their names in the message."""
    defaults, hints = default_settings(type(settings)), get_type_hints(type(settings), include_extras=True)
    for name in (one.name for one in dataclasses.fields(settings)):
        if not dataclasses.is_dataclass(hint := hints[name]):
            read_setting(hint, getattr(settings, name), f"{section}.{name}".removeprefix("."), defaults.get(name))


def default_settings(kind: type) -> dict[str, Any]:
    return {one.name: one.default for one in dataclasses.fields(kind) if one.default is not dataclasses.MISSING}


def read_setting(hint: Any, value: Any, name: str, default: Any = None) -> Any:
    """Convert the value to `hint` (a type, with `Limits` in its annotation): lists become tuples, 1 becomes 1.0.

    Args:
        hint: `int`, `float`, `bool`, `str`, a `Literal`, a `tuple` of these, or a union of one of them with None.
        value: The value to convert.
        name: The name by which the user knows the setting.
        default: The value suggested in the message; None: no suggestion.
    """
    kind, limits = _parts(hint)
    if get_origin(kind) is tuple:
        return _read_list(kind, limits, value, name, default)
    if get_origin(kind) is Mapping:
        if isinstance(value, Mapping) and all(isinstance(one, Mapping) for one in value.values()):
            return value
        raise UserError(_refusal(describe_setting(hint), value, name, default or None))
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and NoneType in options:
        return None
    (plain,) = (option for option in options if option is not NoneType)
    if _fits(plain, value) and _within(plain, limits, value):
        return plain(value) if plain in (int, float) else value
    raise UserError(_refusal(describe_setting(hint), value, name, default))


def describe_setting(hint: Any) -> str:
    """Describe the allowed values of a setting, for example `a whole number from 1 to 1,000`."""
    kind, limits = _parts(hint)
    if get_origin(kind) is tuple:
        items = get_args(kind)
        many = items[-1] is Ellipsis
        filled = limits is not None and limits.filled
        size = ("a list, not empty," if filled else "a list") if many else f"a list of exactly {len(items)}"
        return f"{size} of {_plural(describe_setting(items[0]))}"
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(as_written, get_args(kind)))}"
    if get_origin(kind) is Mapping:
        return "tables with different names"
    if dataclasses.is_dataclass(kind):
        return "a table of settings"
    noun = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
    return f"{noun} {limits}" if limits is not None and str(limits) else noun


def private_settings(settings: type, prefix: str = "") -> dict[str, list[str]]:
    """Names of settings that an anonymous run leaves out: `files` may name files, `own_words` hold the user's words.

    Names are written as `corpus.name`, `tune[].train` (in a list of tables) or `tags[]` (a list of texts).
    """
    found: dict[str, list[str]] = {"files": [], "own_words": []}
    for name, hint in get_type_hints(settings, include_extras=True).items():
        kind, limits = _parts(hint)
        items = get_args(kind) if get_origin(kind) is tuple else ()
        inner, end = (items[0], "[]") if items else (kind, "")
        if dataclasses.is_dataclass(inner):
            for key, names in private_settings(inner, f"{prefix}{name}{end}.").items():  # type: ignore[arg-type]
                found[key] += names
        elif limits is not None and (limits.file or limits.own):
            found["files" if limits.file else "own_words"].append(f"{prefix}{name}{end}")
    return found


def example_setting(hint: Any) -> str:
    """An allowed number (the smallest above 0) or text (the first that the limits name)."""
    kind, limits = _parts(hint)
    if kind is str and limits is not None:
        return limits.pattern.partition("|")[0]
    least = limits.at_least if limits is not None and limits.at_least else 1
    return f"{kind(least)}"


def as_written(value: Any) -> str:
    """A value in the notation of a plan rather than of Python, shortened to one line."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "inf", "-inf": "-inf"}.get(str(value), "nan")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**_SHOWN:
        return f"a number of about {int(value.bit_length() * math.log10(2)) + 1:,} digits"
    if value is None:
        return "nothing"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    try:
        text = json.dumps(value, ensure_ascii=False, default=_named)
    except (ValueError, TypeError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"


def in_markdown(text: str) -> str:
    r"""One line of text in which Markdown finds no markup, links, images, HTML or columns of a table.

    >>> in_markdown("<b>my_model</b>")
    '\\<b\\>my\\_model\\</b\\>'
    """
    return re.sub(r"([\\`*_{}\[\]<>#|~!&$])", r"\\\1", " ".join(text.split()))


def _named(value: Any) -> Any:
    """Convert a value that JSON lacks: an array becomes its numbers, anything else the name of its type."""
    if isinstance(value, Integral | Real):
        return float(value) if not isinstance(value, Integral) else int(value)
    return str(value) if type(value).__str__ is not object.__str__ else f"a {type(value).__name__}"


def _parts(hint: Any) -> tuple[Any, Limits | None]:
    """The type without its annotation, and its limits; for `T | None` the limits may be on T."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return kind, next((note for note in notes if isinstance(note, Limits)), None)
    if get_origin(hint) in (Union, UnionType):
        inner = [_parts(option) for option in get_args(hint)]
        return Union[tuple(kind for kind, _ in inner)], next((limits for _, limits in inner if limits), None)  # noqa: UP007
    return hint, None


def _read_list(kind: Any, limits: Limits | None, value: Any, name: str, default: Any) -> tuple:
    items = get_args(kind)
    wanted = describe_setting(Annotated[kind, limits]) if limits else describe_setting(kind)
    fits = isinstance(value, list | tuple) and len(value) <= _MOST_ITEMS
    if not fits or (limits and limits.filled and not value):
        raise UserError(_refusal(wanted, value, name, default))
    if items[-1] is Ellipsis:
        items = (items[0],) * len(value)
    if len(items) != len(value):
        raise UserError(_refusal(wanted, value, name, default))
    read = tuple(
        read_setting(item, each, f"{name}[{index}]")
        for index, (item, each) in enumerate(zip(items, value, strict=True))
    )
    if limits and limits.distinct and len(set(read)) < len(read):
        raise UserError(f"{name} must be a list of different values. Got {as_written(value)}. Leave out one.")
    return read


def _fits(kind: Any, value: Any) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    return isinstance(value, kind)


def _within(kind: Any, limits: Limits | None, value: Any) -> bool:
    if kind is float:
        # A whole number beyond the largest float is not allowed as a setting either.
        return abs(value) < 1e300 and (limits is None or limits.hold(value))
    if kind is int:
        return abs(value) < 2**63 and (limits is None or limits.hold(value))
    if kind is str:
        plain = len(value) <= _MOST_CHARACTERS and not re.search(r"[\x00-\x1f\x7f]", value)
        if not plain or limits is None:
            return plain
        return (bool(value.strip()) or not limits.filled) and bool(re.fullmatch(limits.pattern or r"(?s).*", value))
    return True


def _refusal(wanted: str, value: Any, name: str, default: Any) -> str:
    advice = "" if default is None else f" Leave it out for the default, {as_written(default)}."
    return f"{name} must be {wanted}. Got {as_written(value)}.{advice}"


def _plural(wanted: str) -> str:
    numbers = {"a whole number": "whole numbers", "a number": "numbers"}
    for one, many in {**numbers, "text": "texts", "a table": "tables"}.items():
        if wanted.startswith(one):
            return many + wanted.removeprefix(one)
    return wanted.replace("one of", "names among", 1)


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) or abs(bound) < 1e6 else f"{bound:g}"


def one_of(name: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    if unknown := [value for value in values if value not in known]:
        raise UserError(
            f"{name} must be among {', '.join(known)}. Got {as_written(unknown[0])}.{did_you_mean(unknown[0], known)}"
        )


def as_tensor(x: Any) -> "Tensor":
    """`x` (a tensor on any device, an array or numbers) as a tensor on the CPU without gradient.

    Memory is shared if PyTorch can: it accepts no negative strides, and warns about read-only memory.
    """
    import torch  # not at module level, since `infoflow --help` imports the foundation

    if isinstance(x, np.ndarray):
        x = np.require(x, requirements=["C", "W"])
    return torch.as_tensor(x).detach().cpu()


def read_only(values: np.ndarray) -> np.ndarray:
    """The array itself, made read-only because it is cached and shared by all callers."""
    values.flags.writeable = False
    return values
