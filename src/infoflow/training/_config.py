"""The settings of one training run, and what follows from them: learning rate, AdamW, precision, matched models."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from infoflow import foundation
from infoflow._transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from infoflow.architectures import Match, ModelConfig, build
from infoflow.corpus import Vocabulary
from infoflow.objectives import AbstractObjective

from ._data import LengthBucketSampler, TrainingData, micro_batches

Schedule = Literal["linear", "polynomial", "inverse_sqrt", "constant"]
Precision = Literal["auto", "fp32", "bf16"]
Beta = Annotated[float, foundation.Limits(at_least=0, below=1)]
Tokens = Annotated[int, foundation.Limits(at_least=1, at_most=10**15)]
WarmUp = Annotated[float, foundation.Limits(at_least=0, at_most=10**9)]
BatchTokens = Annotated[int, foundation.Limits(at_least=1, at_most=10**8)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How long, how fast and how exactly to train; the same for every objective of a study."""

    updates: foundation.Count = 2000  # optimiser steps
    max_source_tokens: Tokens | None = None  # stop at the first update that reaches this many source tokens, if earlier
    batch_tokens: BatchTokens = 2048  # padded *source* tokens of one update, over all processes
    batch_sentences: foundation.Count | None = None  # at most this many sentences in one update
    micro_tokens: BatchTokens = 4096  # padded tokens of a forward pass, source and target together; affects memory only
    seed: foundation.Seed = 0  # of data order, noise and dropout; the initialisation has its own seed

    learning_rate: foundation.LearningRate = 1.5e-3  # peak
    warmup: WarmUp = 0.08  # updates in which the rate rises; below 1: a share of `updates`
    schedule: Schedule = "linear"  # of the rate after the warm-up
    end_learning_rate: Annotated[float, foundation.Limits(at_least=0, at_most=10)] = (
        0.0  # learning rate at the end of linear and polynomial schedules
    )
    power: Annotated[float, foundation.Limits(above=0, at_most=100)] = 1.0  # exponent of the polynomial schedule
    count_from: Literal["one", "fairseq"] = "one"  # fairseq reads its counter late: its first two updates share a rate

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    epsilon: Annotated[float, foundation.Limits(above=0, at_most=1)] = 1e-6
    weight_decay: Annotated[float, foundation.Limits(at_least=0, at_most=100)] = 0.01  # decoupled
    decay_norms: bool = True  # also decay LayerNorms and biases, as fairseq does but BERT does not
    clip: foundation.Weight = 1.0  # largest global gradient norm; 0 disables clipping
    label_smoothing: foundation.Share = 0.0  # in training only

    precision: Precision = "auto"  # auto: bf16 where measurements show that it helps, see `resolve_precision`
    device: foundation.Device = "auto"  # "cpu", "cuda", "mps" or "auto"

    log_every: foundation.Count = 10  # updates per line of log.jsonl
    evaluate_every: foundation.CountOrNone = 0  # updates between evaluations; 0: at the end only
    save_every: foundation.CountOrNone = 500  # updates between checkpoints; 0: at the end only
    keep_last: foundation.Count = 2  # number of recent checkpoints that stay resumable

    def __post_init__(self) -> None:
        foundation.check_settings(self, "training")
        if self.end_learning_rate > self.learning_rate:
            raise foundation.UserError(
                "training.end_learning_rate must be at most training.learning_rate. Got "
                f"{self.end_learning_rate} and {self.learning_rate}. Lower it, or leave it out for 0."
            )
        if self.learning_rate * self.weight_decay >= 1:
            raise foundation.UserError(
                "training.learning_rate times training.weight_decay must be below 1: an update reduces "
                f"weights by that share. Got {self.learning_rate} and {self.weight_decay}. Lower one of them."
            )

    @property
    def warmup_updates(self) -> int:
        """Number of warm-up updates, from either form of the setting."""
        return round(self.warmup * self.updates) if self.warmup < 1 else round(self.warmup)


def learning_rate(update: int, config: TrainConfig) -> float:
    r"""The learning rate of update n = 1, 2, ..., with peak p, warm-up w, total N and end value e.

    | schedule       | n <= w  | n > w                                        |
    |----------------|---------|----------------------------------------------|
    | `polynomial`   | p n / w | e + (p - e) (1 - (n - w) / (N - w))^power; e from N on |
    | `linear`       | p n / w | the polynomial of power 1                    |
    | `inverse_sqrt` | p n / w | p sqrt(w / n) (without warm-up, p / sqrt(n)) |
    | `constant`     | p n / w | p                                            |

    The first update uses p / w, not 0. With `count_from="fairseq"`, the counter lags by one from the second update on,
    so the rate p / w is used twice and the end value is never reached.
    """
    assert update >= 1
    n = max(1, update - 1) if config.count_from == "fairseq" else update
    peak, warmup, total = config.learning_rate, config.warmup_updates, config.updates
    if n <= warmup:
        return peak * n / warmup
    if config.schedule == "constant":
        return peak
    if config.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / n)
    if n >= total:
        return config.end_learning_rate
    power = config.power if config.schedule == "polynomial" else 1.0
    left = 1 - (n - warmup) / (total - warmup)
    return config.end_learning_rate + (peak - config.end_learning_rate) * left**power


def make_optimizer(module: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with decoupled decay of all parameters, or of matrices only (`decay_norms`).

    A parameter with its own rate (see `rate_scale`) is not decayed, unless it sets `decays_too`.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {(1.0, config.weight_decay): [], (1.0, 0.0): []}
    for parameter in module.parameters():
        if parameter.requires_grad:
            decayed = rate_scale(parameter) == 1.0 or getattr(parameter, "decays_too", False)
            decayed &= config.decay_norms or parameter.ndim >= 2
            key = rate_scale(parameter), config.weight_decay if decayed else 0.0
            groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": decay, **({} if scale == 1.0 else {"rate_scale": scale})}
            for (scale, decay), parameters in groups.items()
            if parameters
        ],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        fused=True,
    )


def rate_scale(parameter: nn.Parameter) -> float:
    """Learning-rate multiplier of a parameter (`parameter.rate_scale`); 1 by default.

    It lets gates learn faster than weights, and lower layers slower than upper ones.
    """
    return float(getattr(parameter, "rate_scale", 1.0))


def optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors, under names of the form `parameter:field`."""
    return {
        f"{name}:{field}": value
        for name, parameter in module.named_parameters()
        for field, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    parameters = dict(module.named_parameters())
    for key, value in state.items():
        name, field = key.rsplit(":", 1)
        parameter = parameters[name]
        # Fused AdamW counts steps in a tensor on the parameter's device.
        optimizer.state[parameter][field] = value.to(parameter.device)


_NAME = "infoflow_sdpa_float32"


@contextmanager
def float32_attention(module: PreTrainedModel) -> Iterator[None]:
    """Run the attention of a Hugging Face model in float32 inside the block.

    PyTorch's CPU kernel for the backward pass in bfloat16 is slow on short sentences. On 100 sentences of 20 tokens,
    with 8 heads of width 16, forward and backward took 36 ms with that kernel and 3 ms in float32 (torch 2.13,
    avx512_bf16). With the kernel, attention took half of a bfloat16 update at width 128.
    """
    before = module.config._attn_implementation
    if before != "sdpa":  # the user chose another implementation, so keep it
        yield
        return
    _register()
    module.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        module.set_attn_implementation(before)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # slow import

    options = {name: _float32(value) for name, value in options.items()}  # T5 passes on what it adds to the scores
    with torch.autocast(query.device.type, enabled=False):
        output, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](
            module, query.float(), key.float(), value.float(), _float32(attention_mask), **options
        )
    return output.to(query.dtype), None


def _float32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


@cache
def _register() -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # slow import

    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


# Speed relative to float32 for causal LM, masked LM and translation, measured with avx512_bf16, attention in float32,
# one thread: 1.7, 1.3 and 1.1 at width 64; 2.1, 1.9 and 1.5 at 128; 2.4, 2.6 and 1.9 at 256.
_SMALLEST_CPU_WIDTH = 64
# Leaves out cuDNN's attention, which recent GPUs prefer in half precision, because it is planned anew for each batch
# shape: with it, an update of 4,096 tokens at width 512 took 500 ms on an H100.
_GPU_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def resolve_precision(precision: Precision, device: torch.device, width: int) -> Precision:
    """`fp32` or `bf16`; for `auto`, the device and the width decide."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    if device.type == "cpu" and width >= _SMALLEST_CPU_WIDTH and _cpu_has_bf16():
        return "bf16"
    return "fp32"


@contextmanager
def mixed_precision(module: PreTrainedModel, precision: Precision, device: torch.device) -> Iterator[None]:
    """Run matrix products in bfloat16 inside the block if `precision` is `bf16`.

    Weights, optimiser state and cross-entropy stay in float32, and so does attention on a CPU.
    """
    if precision != "bf16":
        yield
        return
    # Weights are cast anew for every matrix product, since a cache would keep the weights from before an update.
    with torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False):
        if device.type != "cpu":
            with sdpa_kernel(_GPU_ATTENTION):
                yield
            return
        with float32_attention(module):
            yield


def _cpu_has_bf16() -> bool:
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def build_models(
    objectives: Sequence[AbstractObjective],
    config: ModelConfig,
    vocabulary: Vocabulary,
    target_vocabulary: Vocabulary | None = None,
    seed: int = 0,
    match: Match = "encoder",
    family: str = "bert",
) -> dict[str, PreTrainedModel]:
    """One model per objective, with embeddings and blocks on the source side that are equal bit for bit.

    Each model has its objective's layout; see `infoflow.architectures.build`.
    """
    names = [objective.name for objective in objectives]
    if len(set(names)) < len(names):
        raise foundation.UserError(
            f"build_models needs distinct objective names. Got {', '.join(names)}.\n"
            "Call it once for each variant of an objective: with the same seed they share their initial weights."
        )
    targets = {True: target_vocabulary, False: None}  # denoising objectives read and write one language
    return {
        one.name: build(family, one.layout, config, vocabulary, targets[one.needs_translation], seed=seed, match=match)
        for one in objectives
    }


_UPDATES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingFlops:
    """Floating-point operations of a training run; a multiplication and an addition count as two."""

    total: float  # forward, and backward where there are gradients; includes padding, since it is computed too
    standard_error: float  # of `total`, from the counted updates; 0 if all updates were counted, NaN if only one was
    updates: int  # number of counted updates


def count_training_flops(
    objective: AbstractObjective,
    config: TrainConfig,
    data: TrainingData,
    model: PreTrainedModel,
    updates: int = _UPDATES,
) -> TrainingFlops:
    r"""Estimate the operations of matrix products and attention in a training run from `updates` of its updates.

    $$ F = T \sum_u F_u / \sum_u T_u $$

    $F_u$ are the operations of update $u$, $T_u$ the tokens of its text and $T$ the tokens of all updates. The updates
    are spread evenly over the training, and the standard error is that of a ratio of sums. For a stack without a head,
    the estimate is close to $6N$ per token for $N$ parameters of matrices, plus $12 L S d$ for attention over $S$
    tokens in $L$ layers of width $d$ ([@kaplan2020]). Heads count only at supervised positions, and frozen parameters
    have no backward pass. Norms, activations, look-ups and the optimiser are left out; at widths of several dozen or
    more, they are a few per cent. The model is not changed; a copy of it runs on the training's device.
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
    """Operations of one update, which is split into the same micro-batches as in training."""
    rows, epoch = sampler.rows(update), sampler.epoch(update)
    target = data.target if objective.needs_translation else None
    target_lengths = None if target is None else np.asarray(target.lengths)
    operations = 0
    for piece in micro_batches(rows, np.asarray(data.source.lengths), target_lengths, config.micro_tokens):
        batch = data.batch(objective, piece, ("training-noise", config.seed), epoch).to(module.device)
        # The counter does not know the fused attention of CPUs; plain attention has the same products.
        with torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            torch.manual_seed(foundation.hash64("flops", update))
            terms = objective.loss(module, batch, batch.noise)
            torch.stack([term.total for term in terms.values()]).sum().backward()
        module.zero_grad(set_to_none=True)
        operations += counter.get_total_flops()
    return operations
