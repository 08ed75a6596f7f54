"""Inputs of probes: spans and pairs of spans, scaled layer by layer, a few examples at a time."""

# N example, L blocks, E width of an input, P probe, O order, B batch

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from ._features import WordFeatures
from ._questions import Examples

_HELD = 1 << 29  # bytes of inputs kept in memory; larger inputs are read again from their source
_CHUNK = 1 << 26  # bytes of inputs read at a time


@runtime_checkable
class InputRows(Protocol):
    """Inputs of examples in all layers: an array (example, layer, width), or an object indexed the same way."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class LayerInputs:
    """Inputs of examples, computed on demand.

    A span is the mean of its words' states, a pair is [first; second; first × second].

    Source: [@liu2019linguistic], for pairs.
    """

    def __init__(self, features: WordFeatures, examples: Examples) -> None:
        spans = [examples.first] if examples.second is None else [examples.first, examples.second]
        self._features = features
        self._spans = [features.spans(examples.sentence, span) for span in spans]
        width = features.width * (3 if len(spans) == 2 else 1)
        self.shape = (len(examples), features.num_states, width)

    def __getitem__(self, index: Int[np.ndarray, " chosen"]) -> Float32[np.ndarray, "chosen state input"]:
        parts = [self._means(first[index], end[index]) for first, end in self._spans]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([*parts, parts[0] * parts[1]], axis=2)

    def _means(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        lengths = end - first
        if (lengths == 1).all():
            return self._features.rows(first)
        before = np.cumsum(lengths) - lengths
        words = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
        sums = np.add.reduceat(self._features.rows(words), before, axis=0)
        return sums / lengths[:, None, None].astype(np.float32)


class ChosenRows:
    """Some of the rows, in the order of their index."""

    def __init__(self, rows: InputRows, index: Int[np.ndarray, " chosen"]) -> None:
        self._rows, self._index = rows, index
        self.shape = (len(index), *rows.shape[1:])

    def __getitem__(self, index: Int[np.ndarray, " chosen"]) -> np.ndarray:
        return self._rows[self._index[index]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scaling:
    """Mean and spread of every input in every layer, over the training examples."""

    mean: Float32[np.ndarray, "layer width"]
    spread: Float32[np.ndarray, "layer width"]
    """1 where all training examples are equal."""

    @classmethod
    def of(cls, rows: InputRows) -> "Scaling":
        num, sums, squares = rows.shape[0], 0.0, 0.0
        shift = np.asarray(rows[np.arange(1)], dtype=np.float64)  # sums of squares of numbers far from 0 lose digits
        for index in chunks(rows):
            values = np.asarray(rows[index], dtype=np.float64) - shift
            sums, squares = sums + values.sum(0), squares + (values**2).sum(0)
        mean = sums / num
        spread = np.sqrt(np.maximum(squares / num - mean**2, 0))
        mean = mean + shift[0]
        constant = spread <= 1e-6 * (1 + np.abs(mean))
        return cls(mean=mean.astype(np.float32), spread=np.where(constant, 1, spread).astype(np.float32))


class ProbeInputs:
    """Scaled inputs on the training device; stored there if they are few, otherwise computed anew each time."""

    def __init__(self, rows: InputRows, scaling: Scaling, device: torch.device, held: int | None = None) -> None:
        self._rows, self._device = rows, device
        self._mean, self._spread = (torch.from_numpy(part).to(device) for part in (scaling.mean, scaling.spread))
        self._held: Float[Tensor, "layer example width"] | None = None
        num, layers, width = rows.shape
        if 4 * num * layers * width <= (_HELD if held is None else held):
            self._held = torch.empty((layers, num, width), device=device)
            for index in chunks(rows):
                self._held[:, index[0] : index[-1] + 1] = self._read(index).transpose(0, 1)

    def __len__(self) -> int:
        return self._rows.shape[0]

    def batch(
        self, index: Int[np.ndarray, "order batch"], order: Int[Tensor, " probe"], layer: Int[Tensor, " probe"]
    ) -> Float[Tensor, "probe batch width"]:
        """The next examples of each probe, in its order and its layer."""
        if self._held is None:
            read = self._read(index.reshape(-1)).unflatten(0, index.shape)
            return read[order, :, layer]
        places = torch.from_numpy(index).to(self._device)[order] + (layer * len(self))[:, None]
        return self._held.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, places.shape)

    def all(self, layer: Int[Tensor, " probe"], most: int) -> Iterator[Float[Tensor, "probe part width"]]:
        """All examples in order, in each probe's layer, at most `most` at a time."""
        for start in range(0, len(self), most):
            end = min(start + most, len(self))
            if self._held is None:
                yield self._read(np.arange(start, end)).transpose(0, 1).index_select(0, layer)
            else:
                yield self._held[:, start:end].index_select(0, layer)

    def _read(self, index: np.ndarray) -> Float[Tensor, "chosen layer width"]:
        states = torch.from_numpy(np.ascontiguousarray(self._rows[index], dtype=np.float32)).to(self._device)
        return (states - self._mean) / self._spread


def chunks(rows: InputRows) -> Iterator[Int[np.ndarray, " chosen"]]:
    """Indices of all examples in order, in chunks of bounded size in bytes."""
    num, layers, width = rows.shape
    size = max(1, _CHUNK // max(1, 4 * layers * width))
    for start in range(0, num, size):
        yield np.arange(start, min(start + size, num))
