"""The user's own measures, from a Python file or as Python objects."""

import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from infoflow.foundation import UserError, as_written, file_digest, run_python_file, told_error, told_in_file
from infoflow.results import KEYS, TableSchema

from ._accepted import accepted_measures
from ._distributed import agree
from ._measure import AbstractMeasure, Origin, PairMeasure, describe_measure

_EXAMPLE = 'Write MINE = infoflow.measure_of(lambda states: states.norm(dim=-1), name="state_norm").'
_KEYS = {column.name for column in KEYS}


def load_measures(path: Path | str, taken: Collection[str] = ()) -> list[AbstractMeasure]:
    """The measures in a Python file.

    These are all measures among its names, or in a list or tuple there, and an instance of each measure class that the
    file defines but does not instantiate, if it needs no arguments.

    **The file's code is executed**: name only files you trust. Results are keyed by the text of the file: a changed
    file is measured again, but changes in its imports are not noticed.

    Args:
        path: The file.
        taken: Table names that its measures must not use.

    Raises:
        UserError: The file cannot be run, holds no measure or an unusable one, or two measures share a name.
    """
    path = Path(path)
    module = run_python_file(path)
    found = list(_measures_in(vars(module).values()))
    found += _made(module, path, {type(one) for one in found})
    found = [one for index, one in enumerate(found) if not any(one is other for other in found[:index])]
    if not found:
        raise UserError(f"{path} holds no measure: no infoflow.Measure among its names. {_EXAMPLE}")
    return _marked(found, Origin(path, file_digest(path)), str(path), taken)


def given_measures(measures: Any, taken: Collection[str] = ()) -> list[AbstractMeasure]:
    """Measures passed as objects; their code is not known for certain, so every call measures them again.

    Raises:
        UserError: `measures` contains something else or an unusable measure, or two measures share a name.
    """
    measures = accepted_measures(measures)
    if not measures:
        raise UserError(f"measures must hold a measure. Got an empty list. {_EXAMPLE}")
    return _marked(measures, Origin(None, agree(uuid4().hex)), "measures", taken)


def _measures_in(values: Any) -> Iterator[AbstractMeasure]:
    for value in values:
        if isinstance(value, AbstractMeasure):
            yield value
        elif isinstance(value, list | tuple):
            yield from (each for each in value if isinstance(each, AbstractMeasure))


def _made(module: ModuleType, path: Path, made: set[type]) -> list[AbstractMeasure]:
    """An instance of each measure class that the file defines and does not use as a base."""
    known = dict.fromkeys(value for value in vars(module).values() if _is_measure_of(value, module))
    own = [one for one in known if not any(issubclass(other, one) for other in [*made, *(known.keys() - {one})])]
    return [_instance(one, path) for one in own]


def _is_measure_of(value: Any, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, AbstractMeasure) and value.__module__ == module.__name__


def _instance(kind: type[AbstractMeasure], path: Path) -> AbstractMeasure:
    name = kind.__name__
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UserError(f"The measure {name} in {path} lacks methods: {missing}. Write them.")
    try:
        inspect.signature(kind).bind()
    except TypeError:
        raise UserError(
            f"The measure {name} in {path} needs arguments. Make one beneath it: MINE = {name}(...)."
        ) from None
    try:
        return kind()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # includes exceptions that would end the process silently
        raise UserError(f"{name}() in {path} failed: {told_in_file(error, path)}. Mend it.") from error


def _marked(
    measures: Sequence[AbstractMeasure], origin: Origin, where: str, taken: Collection[str]
) -> list[AbstractMeasure]:
    names: set[str] = set()
    for measure in measures:
        if fault := _fault(measure):
            raise UserError(f"{type(measure).__name__} in {where} is no measure that can be used: {fault}. Mend it.")
        if measure.name in names or measure.name in taken:
            whose = f"two in {where} have it" if measure.name in names else "the package has it"
            raise UserError(f"Each measure needs a name of its own: {measure.name} is taken, {whose}. Change it.")
        names.add(measure.name)
    return [measure.from_origin(origin) for measure in measures]


def _fault(measure: AbstractMeasure) -> str:
    """Why it is unusable, or ""; nothing else checks types in user code."""
    table = getattr(measure, "table", None)
    if not isinstance(table, TableSchema):
        return f"its table must be a TableSchema, got {as_written(table)}"
    if not isinstance(table.name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", table.name):
        return f"the name of its table must be a word of letters, digits and _, got {as_written(table.name)}"
    if keys := _KEYS.intersection(table.column_names):
        return f"the column {min(keys)} says which model a row is about, and is added to its table; choose another name"
    if isinstance(measure, PairMeasure):
        return "it is one of two models; infoflow.compare takes those"
    try:
        describe_measure(measure)
    except Exception as error:  # whatever its attributes do
        return told_error(error)
    return ""
