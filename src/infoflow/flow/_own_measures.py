"""The user's own measures: from a function, a Python file or Python objects."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args
from uuid import uuid4

import numpy as np
import pandas as pd
from torch import Tensor

from infoflow.foundation import (
    NUM_BLOCKS,
    UserError,
    as_written,
    described_in_file,
    error_text,
    file_digest,
    own_module,
)
from infoflow.results import KEYS, Column, TableSchema, estimate_columns, ratio_estimate

from ._distributed import agree
from ._measure import AbstractMeasure, Measure, Origin, PairMeasure, describe_measure
from ._runner import accepted_measures
from ._sample import Activations, Need

# B sentence, T token (padded), H head

Function = Callable[[Tensor], Tensor]


def measure_of(
    function: Function, *, of: Need = "hidden", name: str = "", unit: str = "", description: str = ""
) -> Measure:
    r"""A measure from a function of one layer: the mean of its values over tokens, for each layer (and head).

    $$ m = \frac{\sum_s \sum_t f(x)_{st}}{\sum_s n_s} $$

    over sentences s and their tokens t that are neither padding nor special; n_s is the number of these tokens. The
    sums are kept per bootstrap block, which gives the interval of the mean and lets shards and processes be merged.

    | `of`        | input of `function`, for one layer                   | its output      |
    |-------------|------------------------------------------------------|-----------------|
    | `hidden`    | states (sentence, token, width)                      | (sentence, token) |
    | `attention` | weights (sentence, head, query, key), rows sum to 1  | (sentence, head, query) |
    | `heads`     | inputs of the output projection (sentence, token, head, width) | (sentence, token, head) |

    The function must treat each sentence separately, since batches may come in any order.

    Args:
        function: Maps one layer to numbers.
        of: Input of the function; only this is computed.
        name: Name of the table; default: the function's name.
        unit: Unit of the values.
        description: Meaning of a value; default: the first line of the function's docstring.

    Raises:
        UserError: `function` is not a function or has no name, or `of` is invalid; while measuring, a shape is wrong.

    >>> measure_of(lambda states: states.norm(dim=-1), name="state_norm").name
    'state_norm'
    """
    if not callable(function) or isinstance(function, type):
        raise UserError(f"measure_of needs a function of one layer's tensor. Got {str(function)[:80]}.")
    if of not in get_args(Need):
        raise UserError(f"of must be {', '.join(get_args(Need))}. Got {str(of)[:80]!r}.")
    name = name or getattr(function, "__name__", "")
    if not name.isidentifier():
        raise UserError(f"The table's name must be a valid Python identifier. Got {name!r}. Write name='my_table'.")
    summary = description or (function.__doc__ or "").strip().split("\n")[0] or f"Mean of {name} over tokens."
    keys = [("stack", "string", "encoder or decoder")]
    keys += [("kind", "string", "self or cross")] if of != "hidden" else []
    keys += [("layer", "int64", "state, 0: embeddings" if of == "hidden" else "block, from 0")]
    keys += [("head", "int64", "head of the block, from 0")] if of != "hidden" else []
    columns = tuple(Column(key, dtype, "", about) for key, dtype, about in keys)  # type: ignore[arg-type]
    values = estimate_columns(unit, summary, "none (NaN): compare with the untrained control", "tokens")
    own = {"table": TableSchema(name=name, version=1, description=summary, columns=(*columns, *values), declare=False)}
    return type("MeasureOf", (_FunctionMeasure,), own)(function, of)


class _FunctionMeasure(Measure):
    """Base of one subclass per function, which only holds its table."""

    by_token = True

    def __init__(self, function: Function, of: Need) -> None:
        self._function, self._of = function, of
        self._sums: dict[str, np.ndarray] = {}  # "stack/kind" → (layers + 1, heads, 64); the last: number of tokens

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        return frozenset({self._of})

    def update(self, activations: Activations) -> None:
        read: Mapping[Any, list[Tensor]] = getattr(activations, self._of)
        blocks = activations.blocks.cpu().numpy()
        for key, layers in read.items():
            stack, kind = (key, "") if isinstance(key, str) else key
            valid = activations.streams[stack].valid & activations.streams[stack].counted
            seen = np.stack([self._sentence_sums(layer, valid) for layer in layers])  # (layers, B, heads)
            tokens = np.broadcast_to(valid.sum(1).double().cpu().numpy()[:, None], seen.shape[1:])
            found = np.concatenate([seen, tokens[None]]).transpose(0, 2, 1)
            sums = self._sums.setdefault(f"{stack}/{kind}", np.zeros((*found.shape[:2], NUM_BLOCKS)))
            np.add.at(sums, (slice(None), slice(None), blocks), found)

    def _sentence_sums(self, layer: Tensor, valid: Tensor) -> np.ndarray:
        """Each sentence's sum over its tokens, (B, heads); one head if the values have none."""
        values = self._function(layer)
        heads = {"hidden": (), "attention": layer.shape[1:2], "heads": layer.shape[2:3]}[self._of]
        wanted = (valid.shape[0], *heads, valid.shape[1]) if self._of == "attention" else (*valid.shape, *heads)
        if not isinstance(values, Tensor) or values.shape != wanted or values.is_complex():
            raise UserError(
                f"The function of {self.name} must return a real tensor of {_axes(wanted)} numbers, one for each "
                f"token{' of each head' if heads else ''}, of a layer of {_axes(layer.shape)}. Got {_given(values)}."
            )
        by_token = values.movedim(1, 2) if self._of == "attention" else values.reshape(*valid.shape, -1)
        # No product: a function may return infinities at padding, and infinity times zero is not zero.
        kept = by_token.double().masked_fill(~valid[..., None], 0.0)
        return kept.sum(1).cpu().numpy()

    def merge(self, other: "_FunctionMeasure") -> None:
        for key, sums in other._sums.items():
            self._sums[key] = self._sums[key] + sums if key in self._sums else sums

    def state_dict(self) -> dict[str, np.ndarray]:
        return dict(self._sums)

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._sums = dict(state)

    def result(self) -> pd.DataFrame:
        rows = []
        for key, sums in self._sums.items():
            stack, _, kind = key.partition("/")
            for layer, head in np.ndindex(len(sums) - 1, sums.shape[1]):
                place = {"stack": stack, "kind": kind, "layer": layer, "head": head}
                number = ratio_estimate(sums[layer, head], sums[-1, head], float("nan"))
                rows.append({**place, **number})
        return self.table.conform(pd.DataFrame(rows)[self.table.column_names])


def _axes(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _given(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{'complex ' if value.is_complex() else ''}numbers of {_axes(value.shape) or 'no axis'}"
    return "nothing" if value is None else f"a {type(value).__name__}"


_EXAMPLE = 'Write MINE = infoflow.measure_of(lambda states: states.norm(dim=-1), name="state_norm").'
_KEYS = {column.name for column in KEYS}


def load_measures(path: Path | str, taken: Collection[str] = ()) -> list[AbstractMeasure]:
    """The measures in a Python file, or in the module of an installed package's entry point (`infoflow.measures`).

    These are all measures that a name in the file refers to, directly or in a list or tuple, and an instance of each
    measure class that the file defines but does not instantiate, if it needs no arguments.

    **The file's code is executed**: name only files you trust. Results are keyed by the text of the file: a changed
    file is measured again, but changes in its imports are not noticed. Its measures must not use the `taken` names.
    """
    module, path = own_module(path, "measures")
    values = [value if isinstance(value, list | tuple) else [value] for value in vars(module).values()]
    found = [one for value in values for one in value if isinstance(one, AbstractMeasure)]
    found += _made(module, path, {type(one) for one in found})
    found = [one for index, one in enumerate(found) if not any(one is other for other in found[:index])]
    if not found:
        raise UserError(f"{path} contains no measure: none of its names is an infoflow.Measure. {_EXAMPLE}")
    return _marked(found, Origin(path, file_digest(path)), str(path), taken)


def given_measures(measures: Any, taken: Collection[str] = ()) -> list[AbstractMeasure]:
    """Measures passed as objects. Changes of their code cannot be detected, so every call measures them again."""
    measures = accepted_measures(measures)
    if not measures:
        raise UserError(f"measures must hold at least one measure. Got an empty list. {_EXAMPLE}")
    return _marked(measures, Origin(None, agree(uuid4().hex)), "measures", taken)


def _made(module: ModuleType, path: Path, made: set[type]) -> list[AbstractMeasure]:
    """An instance of each measure class that the file defines, except base classes of others."""
    classes = (value for value in vars(module).values() if isinstance(value, type))
    known = {one: None for one in classes if issubclass(one, AbstractMeasure) and one.__module__ == module.__name__}
    own = [one for one in known if not any(issubclass(other, one) for other in [*made, *(known.keys() - {one})])]
    return [_instance(one, path) for one in own]


def _instance(kind: type[AbstractMeasure], path: Path) -> AbstractMeasure:
    name = kind.__name__
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UserError(f"The measure {name} in {path} lacks methods: {missing}. Write them.")
    try:
        inspect.signature(kind).bind()
    except TypeError:
        raise UserError(
            f"The measure {name} in {path} needs arguments. Create an instance below the class: MINE = {name}(...)."
        ) from None
    try:
        return kind()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # includes exceptions that would end the process silently
        raise UserError(f"{name}() in {path} failed: {described_in_file(error, path)}. Correct it.") from error


def _marked(
    measures: Sequence[AbstractMeasure], origin: Origin, where: str, taken: Collection[str]
) -> list[AbstractMeasure]:
    names: set[str] = set()
    for measure in measures:
        if fault := _fault(measure):
            raise UserError(f"{type(measure).__name__} in {where} cannot be used as a measure: {fault}. Correct it.")
        if measure.name in names or measure.name in taken:
            whose = f"two in {where} have it" if measure.name in names else "the package has it"
            raise UserError(f"Each measure needs a unique name: {measure.name} is taken, {whose}. Change it.")
        names.add(measure.name)
    return [measure.from_origin(origin) for measure in measures]


def _fault(measure: AbstractMeasure) -> str:
    """Why the measure is unusable, or ""; nothing else checks types in user code."""
    table = getattr(measure, "table", None)
    if not isinstance(table, TableSchema):
        return f"its table must be a TableSchema, got {as_written(table)}"
    if not isinstance(table.name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", table.name):
        return f"the name of its table must be a word of letters, digits and _, got {as_written(table.name)}"
    if keys := _KEYS.intersection(table.column_names):
        return f"the column {min(keys)} says which model a row is about, and is added to its table; choose another name"
    if isinstance(measure, PairMeasure):
        return "it compares two models; pass it to infoflow.compare"
    try:
        describe_measure(measure)
    except Exception as error:  # attributes of user code may raise anything
        return error_text(error)
    return ""
