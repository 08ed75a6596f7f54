"""What a code transmits: features, labels, sentences, and the blocks in which labels are sent."""

# N target, L layer, D width, S seed, P probe (seeds x layers, layers inner), B target of a batch

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError, as_tensor, stream

from ._first_choice import first_choice

PREFIXES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Shares of the training sentences that a probe is trained on before the next block is sent."""
_LOGITS = 1 << 24  # numbers in the logits held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CodedTargets:
    """Labelled targets, with the evaluation of the probes that code them."""

    x_NLD: Float[Tensor, "target layer width"]
    y_N: Int[Tensor, " target"]
    at: Int[np.ndarray, " target"]
    """Indices of the targets among the input: those whose label is not −1."""
    groups: Int[np.ndarray, " target"]
    """The sentence of each target."""
    num: int
    """Number of input targets."""
    classes: int

    @classmethod
    def of(cls, x: Tensor | np.ndarray, y: Tensor | np.ndarray, classes: int, groups: np.ndarray | None = None):
        """The targets with a label.

        Raises:
            UserError: Lengths differ, a label is not in −1..classes − 1, no label counts, a feature is not finite.
        """
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

        `right` receives the score of each probe's first choice, part by part, (targets, probes).
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

    Raises:
        UserError: `fractions` do not rise from above 0 to 1.
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
    """Batches of an epoch as indices (S, B) into `num` targets: an order for each seed, the same for all layers."""

    def batches(epoch: int) -> Iterator[Tensor]:
        orders = np.stack([stream(key, seed, epoch).permutation(num) for seed in seeds])
        for start in range(0, num, size):
            yield torch.from_numpy(orders[:, start : start + size])

    return batches
