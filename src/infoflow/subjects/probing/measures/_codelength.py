"""Description length: the number of bits needed to send the labels to someone who has the features."""

# N target, L layer, D width, S seed, P probe (seeds x layers, layers inner), B target of a batch

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError, as_tensor, stream
from infoflow.representations import first_choice

PREFIXES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Shares of the training sentences that a probe is trained on before the next block is sent."""
_LOGITS = 1 << 24  # number of logits held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CodedTargets:
    """Labelled targets, and how probes that code them are evaluated."""

    x_NLD: Float[Tensor, "target layer width"]
    y_N: Int[Tensor, " target"]
    at: Int[np.ndarray, " target"]  # indices of the targets among the input: those whose label is not −1
    groups: Int[np.ndarray, " target"]  # the sentence of each target
    num: int  # number of input targets
    classes: int

    @classmethod
    def of(cls, x: Tensor | np.ndarray, y: Tensor | np.ndarray, classes: int, groups: np.ndarray | None = None):
        """The targets with a label."""
        features = (x.detach() if isinstance(x, Tensor) else as_tensor(x)).float()
        labels = as_tensor(y).numpy()
        if features.dim() not in (2, 3) or labels.shape != features.shape[:1]:
            raise UserError(
                "x must be (targets, width) or (targets, layers, width) and y (targets,). "
                f"Got {tuple(features.shape)} and {labels.shape}."
            )
        if not np.issubdtype(labels.dtype, np.integer) or classes < 2:
            raise UserError(f"y must hold whole numbers and classes be at least 2. Got {labels.dtype} and {classes}.")
        if len(labels) and (labels.min() < -1 or labels.max() >= classes):
            raise UserError(
                f"y must lie in 0..{classes - 1}, or be -1: ignored. Got {labels.min()}..{labels.max()}.\n"
                "All labels are classes from the start, those of the development data too."
            )
        at = np.flatnonzero(labels >= 0)
        if len(at) == 0:
            raise UserError(f"A code needs labels. Got {len(labels)} targets, none of them with a label.")
        owners = np.arange(len(labels)) if groups is None else np.asarray(groups)
        if owners.shape != labels.shape:
            raise UserError(f"groups must name the sentence of each target. Got {owners.shape} for {labels.shape}.")
        chosen = features[torch.from_numpy(at).to(features.device)]
        if not bool(torch.isfinite(chosen).all()):
            raise UserError("x must be finite. Got a feature that is not a number, or infinite.")
        return cls(
            x_NLD=chosen if chosen.dim() == 3 else chosen[:, None],
            y_N=torch.from_numpy(labels[at].astype(np.int64)).to(chosen.device),
            at=at,
            groups=owners[at],
            num=len(labels),
            classes=classes,
        )

    def __len__(self) -> int:
        return len(self.y_N)

    @property
    def layers(self) -> int:
        return self.x_NLD.shape[1]

    def taken(self, index: np.ndarray) -> "CodedTargets":
        """The targets at these indices, in this order."""
        place = torch.from_numpy(index).to(self.y_N.device)
        return CodedTargets(
            x_NLD=self.x_NLD[place],
            y_N=self.y_N[place],
            at=self.at[index],
            groups=self.groups[index],
            num=self.num,
            classes=self.classes,
        )

    def inputs(self, index_SB: Int[Tensor, "seed target"], active: Int[Tensor, " probe"]) -> Tensor:
        """Features (P, B, D) of each seed's targets for the probes at these indices."""
        return self.x_NLD[index_SB[active // self.layers], (active % self.layers)[:, None]]

    def nats(
        self, logits: Callable[[Tensor], Tensor], active: Int[Tensor, " probe"], right: list[Tensor] | None = None
    ) -> Float[Tensor, "target probe"]:
        """−ln p of each label under the probes at these indices; `logits` maps features (P, B, D) to logits.

        If `right` is a list, whether each probe's first choice is the label is appended to it, chunk by chunk,
        (targets, probes).
        """
        size = max(1, _LOGITS // (len(active) * max(self.classes, self.x_NLD.shape[2])))
        found = []
        for start in range(0, len(self), size):
            x_PBD = self.x_NLD[start : start + size, active % self.layers].transpose(0, 1)
            said = logits(x_PBD)
            y_PB = self.y_N[start : start + size].expand(len(active), -1)
            if right is not None:
                right.append(first_choice(said, y_PB).T)
            found.append(said.log_softmax(2).gather(2, y_PB[..., None])[..., 0].neg().T)
        return torch.cat(found)


def sent_blocks(
    groups: np.ndarray, fractions: Sequence[float], shuffle_seed: int
) -> tuple[Int[np.ndarray, " target"], tuple[int, ...]]:
    """The order in which targets are sent, and how many are known after each block.

    Sentences are shuffled once, and targets stay with their sentence. Prefixes that are empty or add no target to the
    previous one are dropped.
    """
    if (
        len(fractions) == 0
        or fractions[-1] != 1
        or any(b <= a for a, b in zip((0, *fractions), fractions, strict=False))
    ):
        raise UserError(f"fractions must rise from above 0 to 1. Got {', '.join(map(str, fractions))}.")
    names, number = np.unique(groups, return_inverse=True)
    place = np.empty(len(names), dtype=np.int64)
    place[stream("codelength-order", shuffle_seed).permutation(len(names))] = np.arange(len(names))
    order = np.argsort(place[number], kind="stable")
    counts = np.cumsum(np.bincount(place[number], minlength=len(names)))
    ends = [int(counts[size - 1]) for size in (int(share * len(names) + 1e-9) for share in fractions) if size > 0]
    return order, tuple(dict.fromkeys(ends))


def shuffled_batches(num: int, size: int, key: str, seeds: Sequence[int]) -> Callable[[int], Iterator[Tensor]]:
    """Batches of an epoch as indices (S, B) into `num` targets; each seed has one order for all layers."""

    def batches(epoch: int) -> Iterator[Tensor]:
        orders = np.stack([stream(key, seed, epoch).permutation(num) for seed in seeds])
        for start in range(0, num, size):
            yield torch.from_numpy(orders[:, start : start + size])

    return batches


Features = Tensor | np.ndarray
Labelled = tuple[Features, Features]  # features and labels


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DescriptionLength:
    """The length of a code in bits. Fields are floats for one probe, arrays over seeds, layers or both for several."""

    bits: Any
    """Length of the whole code: `model_bits` plus `data_bits`."""
    data_bits: Any
    """Cross-entropy of all training labels under the probe trained on all of them."""
    uniform_bits: float
    r"""Cost of the labels under a uniform distribution over the K classes: $N \log_2 K$."""
    test_right: np.ndarray | None
    """Whether the probe trained on all labels predicts each test label, (targets, ...); None without test data."""
    targets: int
    """N: number of labels that are not ignored."""
    blocks: tuple[int, ...]
    """Online code: number of labels known after each block; else empty."""
    target_bits: np.ndarray
    """Bits spent on each input target, (targets, ...), excluding a variational code's model; 0 for ignored ones."""
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
    """The shape of results over probes; the axis of seeds or layers is dropped if the input has none."""

    given: CodedTargets
    seed: int | Sequence[int]
    axes: int  # number of axes of the features: 2 for one layer

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
        """Costs of targets in the order of the input, (targets, ...), from costs in the given order."""
        spread = np.zeros((self.given.num, costs_NP.shape[1]), dtype=np.float32)
        spread[self.given.at[order]] = costs_NP
        return self.targets_first(spread)

    def targets_first(self, values_NP: np.ndarray) -> np.ndarray:
        """Values of targets (N, P) as (targets, seeds, layers)."""
        return np.ascontiguousarray(np.moveaxis(np.asarray(self.of(values_NP.T)), -1, 0))


def like(given: CodedTargets, other: Labelled | None, name: str) -> CodedTargets | None:
    """Development or test data in the same form as the training data."""
    if other is None:
        return None
    made = CodedTargets.of(*other, given.classes)
    if made.x_NLD.shape[1:] != given.x_NLD.shape[1:]:
        found, wanted = tuple(made.x_NLD.shape[1:]), tuple(given.x_NLD.shape[1:])
        raise UserError(f"{name} must have the layers and the width of x, {wanted}. Got {found}.")
    return made
