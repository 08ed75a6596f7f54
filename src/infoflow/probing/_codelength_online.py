"""The online code: labels are sent in blocks, each coded with a probe trained on all blocks before it."""

# N target, S seed, P probe (seeds x layers, layers inner)

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from infoflow.foundation import UserError

from ._codelength import (
    PREFIXES,
    CodedTargets,
    DescriptionLength,
    Features,
    Labelled,
    Several,
    beside,
    sent_blocks,
    shuffled_batches,
)
from ._stacked import Schedule, mlp_logits, mlp_parameters, train_stacked


def online_codelength(
    x: Features,
    y: Features,
    classes: int,
    seed: int | Sequence[int] = 0,
    *,
    groups: np.ndarray | None = None,
    dev: Labelled | None = None,
    test: Labelled | None = None,
    hidden: Sequence[int] = (256, 256),
    fractions: Sequence[float] = PREFIXES,
    batch: int = 64,
    schedule: Schedule | None = None,
    shuffle_seed: int = 0,
    legacy_units: bool = False,
) -> DescriptionLength:
    r"""The online (prequential) code: each block of labels is coded with a probe trained on all blocks before it.

    $$ L = t_1 \log_2 K - \sum_{i=1}^{S-1} \log_2 p_{\theta_i}(y_{t_i+1..t_{i+1}} \mid x_{t_i+1..t_{i+1}}) $$

    | symbol     | here                                                                          |
    |------------|-------------------------------------------------------------------------------|
    | $t_i$      | labels among the first `fractions[i]` of the shuffled sentences               |
    | $K$        | `classes`; all are outputs from the start, so an unseen one costs finite bits |
    | $\theta_i$ | a new perceptron (ReLU), trained on these labels and stopped by `dev`         |

    The probe trained on all labels is used for `data_bits` and `accuracy` only. All layers and seeds train together.

    Args:
        x: Features (targets, width), or (targets, layers, width) for several layers.
        y: Labels (targets,) in 0..classes − 1; −1 is ignored.
        classes: K.
        seed: Seeds initial weights and the order of batches; several seeds add a first axis to the results.
        groups: The sentence of each target: prefixes hold whole sentences. Default: each target is its own sentence.
        dev: Features and labels for early stopping; they are not coded. Without them, the last tenth of each prefix is
            used, and the probe is trained on the rest.
        test: Features and labels for `accuracy`.
        hidden: Sizes of hidden layers; none for a linear probe.
        fractions: Shares of sentences, rising to 1; empty or duplicate prefixes of a small corpus are dropped.
        batch: Targets per step.
        schedule: Default: Adam at 0.001, halved after every epoch without a new best loss; a probe stops after five
            epochs without an improvement by 0.001 nats, or after 50.
        shuffle_seed: Seeds the order of sentences.
        legacy_units: Add natural logarithms to bits, as the reference's code does; `units` is then "mixed".

    Raises:
        UserError: Lengths or widths differ, labels are out of range, all labels are ignored, or a feature is not
            finite.

    Source: [@voita2020], the authors' code; they report bits / 1024, and natural logarithms as bits.
    """
    with torch.inference_mode(False):
        given = CodedTargets.of(x, y, classes, groups)
        if batch < 1:
            raise UserError(f"batch must be at least 1. Got {batch}.")
        several = Several(given, seed, x.ndim)
        seeds = several.seeds
        order, blocks = sent_blocks(given.groups, fractions, shuffle_seed)
        coder = _Coder(
            sent=given.taken(order),
            dev=beside(given, dev, "dev"),
            seeds=seeds,
            hidden=tuple(hidden),
            batch=batch,
            schedule=schedule or Schedule(),
        )
        costs = np.full((len(given), len(seeds) * given.layers), math.log2(classes))
        for index, known in enumerate(blocks):
            final = coder.trained(index, known)
            if index < len(blocks) - 1:
                costs[known : blocks[index + 1]] = coder.nats(final, known, blocks[index + 1])
        data = coder.nats(final, 0, len(given))
        right = coder.right(final, beside(given, test, "test"))
    unit = 1.0 if legacy_units else math.log(2)
    costs[blocks[0] :] /= unit
    return DescriptionLength(
        bits=several.of(costs.sum(0)),
        data_bits=several.of(data.sum(0) / unit),
        uniform_bits=len(given) * math.log2(classes),
        test_right=None if right is None else several.targets_first(right),
        targets=len(given),
        blocks=blocks,
        target_bits=several.by_target(costs, order),
        target_data_bits=several.by_target(data / unit, order),
        units="mixed" if legacy_units else "bits",
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Coder:
    """Trains the probes of all seeds and layers on prefixes, and evaluates them."""

    sent: CodedTargets
    dev: CodedTargets | None
    seeds: Sequence[int]
    hidden: tuple[int, ...]
    batch: int
    schedule: Schedule

    def trained(self, index: int, known: int) -> list[Tensor]:
        """New probes, trained on the first `known` labels."""
        prefix = self.sent.taken(np.arange(known))
        train, dev = (prefix, self.dev) if self.dev is not None else _apart(prefix)
        sizes = (self.sent.x_NLD.shape[2], *self.hidden, self.sent.classes)
        key = f"codelength-{index}"
        device = self.sent.y_N.device
        fresh = [each.to(device) for each in mlp_parameters(key, self.seeds, self.sent.layers, sizes)]

        def loss(parameters: Sequence[Tensor], active: Tensor, index_SB: Tensor) -> Tensor:
            index_SB = index_SB.to(device)
            logits = mlp_logits(parameters, train.inputs(index_SB, active))
            targets = train.y_N[index_SB[active // train.layers]]
            nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            return nats.view(targets.shape).mean(1)

        def development(parameters: Sequence[Tensor], active: Tensor) -> Tensor:
            return dev.nats(lambda x: mlp_logits(parameters, x), active).mean(0)

        batches = shuffled_batches(len(train), self.batch, key, self.seeds)
        return train_stacked(fresh, batches, loss, development, self.schedule)

    def nats(self, parameters: Sequence[Tensor], start: int, end: int) -> np.ndarray:
        """−ln p of the labels from `start` to `end`, (N, P)."""
        with torch.no_grad():
            part, every = self.sent.taken(np.arange(start, end)), self._every
            return part.nats(lambda x: mlp_logits(parameters, x), every).double().cpu().numpy()

    def right(self, parameters: Sequence[Tensor], test: CodedTargets | None) -> np.ndarray | None:
        """Which test labels each probe predicts, (N, P)."""
        if test is None:
            return None
        right: list[Tensor] = []
        with torch.no_grad():
            test.nats(lambda x: mlp_logits(parameters, x), self._every, right)
        return torch.cat(right).cpu().numpy()

    @property
    def _every(self) -> Tensor:
        return torch.arange(len(self.seeds) * self.sent.layers, device=self.sent.y_N.device)


def _apart(prefix: CodedTargets) -> tuple[CodedTargets, CodedTargets]:
    """Training and development part of a prefix; the last tenth of its sentences is for early stopping."""
    change = np.flatnonzero(np.diff(prefix.groups)) + 1
    starts = np.concatenate([[0], change])
    if len(starts) < 2:
        return prefix, prefix
    first = int(starts[-max(1, len(starts) // 10)])
    return prefix.taken(np.arange(first)), prefix.taken(np.arange(first, len(prefix)))
