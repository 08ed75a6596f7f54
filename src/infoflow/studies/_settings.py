"""Settings in plan files: the text of a file, its tables, and the dataclass that they fill."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from infoflow.foundation import UserError, as_written, default_settings, did_you_mean, read_setting

_LARGEST_PLAN = 1_000_000
_MOST_TABLES = 1000  # tables with the same name


def read_plan(path: Path) -> str:
    """The text of a plan file.

    Raises:
        UserError: The file is too large for a plan, or not UTF-8.
    """
    if (size := path.stat().st_size) > _LARGEST_PLAN:
        raise UserError(f"A study plan has at most {_LARGEST_PLAN:,} bytes. {path} has {size:,}. Name a plan.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text, so it is not a TOML file. Save it as UTF-8.") from None


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        UserError: The text is not TOML, or its nesting or numbers exceed any plan; the message names `source`.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is not valid TOML: {str(error).rstrip('.')}. Correct that line.") from None
    except RecursionError:
        raise UserError(f"{source} nests lists too deeply for a plan. Write name = value under [table].") from None
    except ValueError:  # the limit of Python
        raise UserError(f"{source} holds a number of more than 4,300 digits. Shorten it.") from None


def build_settings(cls: type, values: Any, path: str = "") -> Any:
    """Build the dataclass from plain values; `path` precedes the names of its settings in messages.

    Raises:
        UserError: A setting is unknown, of the wrong type, or beyond its limits.
    """
    if not isinstance(values, dict):
        name = path.removesuffix(".")
        what = f"{name} must be a table of settings, written [{name}]" if name else "A plan must be a table of settings"
        raise UserError(f"{what}. Got {as_written(values)}.")
    hints, defaults = get_type_hints(cls, include_extras=True), default_settings(cls)
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            meant = did_you_mean(name, hints, path)
            raise UserError(
                f"The plan has no setting {path}{str(name)[:80]}.{meant} Known settings: {', '.join(hints)}."
            )
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            arguments[name] = build_settings(hint, value, f"{path}{name}.")  # type: ignore[arg-type]
        elif (table := _table_of(hint)) is not None:
            arguments[name] = _build_tables(table, value, f"{path}{name}")
        else:
            arguments[name] = read_setting(hint, value, f"{path}{name}", defaults.get(name))
    return cls(**arguments)


def _table_of(hint: Any) -> type | None:
    """The dataclass of each item of a list, for tables written as [[NAME]]."""
    items = get_args(hint) if get_origin(hint) is tuple else ()
    return items[0] if items and dataclasses.is_dataclass(items[0]) else None  # type: ignore[return-value]


def _build_tables(cls: type, values: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple) or len(values) > _MOST_TABLES:
        raise UserError(
            f"{path} must be a list of at most {_MOST_TABLES:,} tables, each written [[{path}]]. "
            f"Got {as_written(values)}."
        )
    return tuple(build_settings(cls, one, f"{path}[{number}].") for number, one in enumerate(values))
