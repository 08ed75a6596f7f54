"""Matched models, so that only the objective differs, and the operations of their training."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from infoflow.architectures import Match, ModelConfig, build
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError, hash64
from infoflow.objectives import AbstractObjective

from ._config import TrainConfig
from ._data import LengthBucketSampler, TrainingData, micro_batches


def build_models(
    objectives: Sequence[AbstractObjective],
    config: ModelConfig,
    vocabulary: Vocabulary,
    target_vocabulary: Vocabulary | None = None,
    seed: int = 0,
    match: Match = "encoder",
    family: str = "bert",
) -> dict[str, PreTrainedModel]:
    """One model per objective, with the same embeddings and blocks on the source side, bit for bit.

    Each has its objective's layout; see `infoflow.architectures.build`.

    Raises:
        UserError: Two objectives have the same name.
    """
    names = [objective.name for objective in objectives]
    if len(set(names)) < len(names):
        raise UserError(
            f"build_models needs distinct objective names. Got {', '.join(names)}.\n"
            "Call it once for each variant of an objective: with the same seed they share their initial weights."
        )
    targets = {True: target_vocabulary, False: None}  # what denoises reads and writes one language
    return {
        one.name: build(family, one.layout, config, vocabulary, targets[one.needs_translation], seed=seed, match=match)
        for one in objectives
    }


_UPDATES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingFlops:
    """Floating-point operations of a training; a multiplication and an addition count as two."""

    total: float  # forward and backward, where there are gradients; padding is computed, so it counts
    standard_error: float  # of `total`, from the counted updates; 0 if all were counted, NaN if one was
    updates: int  # number of counted updates


def count_training_flops(
    objective: AbstractObjective,
    config: TrainConfig,
    data: TrainingData,
    model: PreTrainedModel,
    updates: int = _UPDATES,
) -> TrainingFlops:
    r"""Matrix products and attention of forward and backward passes, on `updates` of the training's own updates.

    $$ F = T \sum_u F_u / \sum_u T_u $$

    $F_u$ are the operations of update $u$ and $T_u$ the tokens of its text, $T$ those of all updates; the updates lie
    evenly over the training, and the standard error is that of a ratio of sums. Of a stack without a head it is close
    to $6N$ per token for $N$ parameters of matrices, plus $12 L T d$ for attention over $T$ tokens in $L$ layers of
    width $d$ ([@kaplan2020]); heads count at supervised positions alone, and what is frozen has no backward pass.
    Norms, activations, look-ups and the optimiser are left out: with widths from some dozens on they are a few per
    cent. The model is not changed; its copy runs on the training's device.
    """
    lengths = np.asarray(data.source.lengths)
    sampler = LengthBucketSampler(lengths, config.seed, config.batch_tokens, config.batch_sentences)
    last = sampler.updates_within(config.max_source_tokens, config.updates)
    text = np.array([lengths[sampler.rows(update)].sum() for update in range(1, last + 1)], dtype=float)
    chosen = np.unique(np.linspace(1, last, min(updates, last)).round().astype(int))
    device = "cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu"
    module: Any = copy.deepcopy(model).to(device)  # type: ignore[arg-type]
    module.train()
    operations = np.array([_of_update(objective, config, data, module, sampler, int(update)) for update in chosen])
    rate = operations.sum() / text[chosen - 1].sum()
    return TrainingFlops(
        total=float(rate * text.sum()),
        standard_error=_standard_error(operations, text[chosen - 1], text),
        updates=len(chosen),
    )


def _standard_error(operations: np.ndarray, counted: np.ndarray, text: np.ndarray) -> float:
    """Standard error of a total from the ratio of sums, with finite-population correction."""
    num, every = len(counted), len(text)
    if num < 2:
        return 0.0 if num == every else float("nan")
    residuals = operations - operations.sum() / counted.sum() * counted
    return float(every * np.sqrt((1 - num / every) * residuals.var(ddof=1) / num))


def _of_update(
    objective: AbstractObjective,
    config: TrainConfig,
    data: TrainingData,
    module: PreTrainedModel,
    sampler: LengthBucketSampler,
    update: int,
) -> int:
    """Operations of one update, split into the micro-batches of training."""
    rows, epoch = sampler.rows(update), sampler.epoch(update)
    target = data.target if objective.needs_translation else None
    target_lengths = None if target is None else np.asarray(target.lengths)
    operations = 0
    for piece in micro_batches(rows, np.asarray(data.source.lengths), target_lengths, config.micro_tokens):
        batch = data.batch(objective, piece, ("training-noise", config.seed), epoch).to(module.device)
        # The counter does not know the fused attention of CPUs; the plain one has the same products.
        with torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            torch.manual_seed(hash64("flops", update))
            terms = objective.loss(module, batch, batch.noise)
            torch.stack([term.total for term in terms.values()]).sum().backward()
        module.zero_grad(set_to_none=True)
        operations += counter.get_total_flops()
    return operations
