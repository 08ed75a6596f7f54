"""Description length: the number of bits needed to send the labels to someone who has the features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from infoflow.foundation import UserError

from ._codelength_targets import CodedTargets

Features = Tensor | np.ndarray
Labelled = tuple[Features, Features]
"""Features and labels."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DescriptionLength:
    """A code's length, in bits. Fields are floats for one probe; arrays over seeds, layers, or both for several."""

    bits: Any
    """Length of the whole code: `model_bits` plus `data_bits`."""
    data_bits: Any
    """Cross-entropy of all training labels under the probe trained on all of them."""
    uniform_bits: float
    r"""Cost of the labels under a uniform distribution over the K classes: $N \log_2 K$."""
    test_right: np.ndarray | None
    """Whether the same probe predicts each label of the test data, (targets, ...); None without test data."""
    targets: int
    """N: number of labels that are not ignored."""
    blocks: tuple[int, ...]
    """Online code: number of labels known after each block; else empty."""
    target_bits: np.ndarray
    """Bits spent on each input target, (targets, ...), without the model for a variational code; 0 for ignored ones."""
    target_data_bits: np.ndarray
    """Contribution of each target to `data_bits`."""
    surviving: Any = None
    """Variational code: number of surviving inputs of each linear layer, (..., linear layers); else None."""
    log_alpha: tuple[np.ndarray, ...] = ()
    r"""Variational code: $\log \alpha$ of each linear layer's inputs, (..., inputs); a histogram has two modes."""
    units: Literal["bits", "mixed"] = "bits"
    """`"mixed"`: natural and binary logarithms are added, as in the reference's code; for comparison with it only."""

    @property
    def model_bits(self) -> Any:
        """Cost of the probe itself: `bits` minus `data_bits`."""
        return self.bits - self.data_bits

    @property
    def accuracy(self) -> Any:
        """Accuracy on the test data; NaN without test data."""
        return float("nan") if self.test_right is None else self.test_right.mean(axis=0)

    @property
    def compression(self) -> Any:
        """`uniform_bits / bits`: 1 if the features carry no information."""
        return self.uniform_bits / self.bits


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """Shapes results over probes: drops the axis of seeds or layers if the input has none."""

    given: CodedTargets
    seed: int | Sequence[int]
    axes: int
    """Number of axes of the features: 2 for one layer."""

    def __post_init__(self) -> None:
        if len(self.seeds) == 0:
            raise UserError("seed must be a number, or several. Got none.")

    @property
    def seeds(self) -> list[int]:
        return [self.seed] if isinstance(self.seed, int) else list(self.seed)

    def of(self, values_P: np.ndarray) -> Any:
        """Values (P, ...) as (seeds, layers, ...), or a float."""
        shaped = np.asarray(values_P).reshape(len(self.seeds), self.given.layers, *np.shape(values_P)[1:])
        if self.axes == 2:
            shaped = shaped[:, 0]
        if isinstance(self.seed, int):
            shaped = shaped[0]
        return float(shaped) if shaped.ndim == 0 else shaped

    def by_target(self, costs_NP: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Costs of the targets in this order as costs of the input targets, (targets, ...)."""
        spread = np.zeros((self.given.num, costs_NP.shape[1]), dtype=np.float32)
        spread[self.given.at[order]] = costs_NP
        return self.targets_first(spread)

    def targets_first(self, values_NP: np.ndarray) -> np.ndarray:
        """Values of targets (N, P) as (targets, seeds, layers)."""
        return np.ascontiguousarray(np.moveaxis(np.asarray(self.of(values_NP.T)), -1, 0))


def beside(given: CodedTargets, other: Labelled | None, name: str) -> CodedTargets | None:
    """Development or test data in the form of the training data.

    Raises:
        UserError: Layers or widths differ; and as in `CodedTargets.of`.
    """
    if other is None:
        return None
    made = CodedTargets.of(*other, given.classes)
    if made.x_NLD.shape[1:] != given.x_NLD.shape[1:]:
        found, wanted = tuple(made.x_NLD.shape[1:]), tuple(given.x_NLD.shape[1:])
        raise UserError(f"{name} must have the layers and the width of x, {wanted}. Got {found}.")
    return made
