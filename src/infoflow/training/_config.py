"""The settings of one training run."""

from dataclasses import dataclass
from typing import Annotated, Literal

from infoflow.foundation import (
    Count,
    CountOrNone,
    Device,
    LearningRate,
    Limits,
    Seed,
    Share,
    UserError,
    Weight,
    check_settings,
)

Schedule = Literal["linear", "polynomial", "inverse_sqrt", "constant"]
Precision = Literal["auto", "fp32", "bf16"]
Beta = Annotated[float, Limits(at_least=0, below=1)]
Tokens = Annotated[int, Limits(at_least=1, at_most=10**15)]
WarmUp = Annotated[float, Limits(at_least=0, at_most=10**9)]
BatchTokens = Annotated[int, Limits(at_least=1, at_most=10**8)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How long, how fast and how exactly to train; the same for every objective of a study."""

    updates: Count = 2000  # optimiser steps
    max_source_tokens: Tokens | None = None  # stop earlier, at the first update that reaches this many source tokens
    batch_tokens: BatchTokens = 2048  # padded *source* tokens of one update, over all processes
    batch_sentences: Count | None = None  # at most this many sentences in one update
    micro_tokens: BatchTokens = 4096  # padded tokens of a forward pass, source and target together; changes memory only
    seed: Seed = 0  # data order, noise and dropout; the initialisation has its own

    learning_rate: LearningRate = 1.5e-3  # peak
    warmup: WarmUp = 0.08  # updates of linear rise; below 1, a share of `updates`
    schedule: Schedule = "linear"  # after the warm-up
    end_learning_rate: Annotated[float, Limits(at_least=0, at_most=10)] = 0.0  # linear and polynomial fall to this
    power: Annotated[float, Limits(above=0, at_most=100)] = 1.0  # of the polynomial
    count_from: Literal["one", "fairseq"] = "one"  # fairseq reads its counter late: its first two updates share a rate

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    epsilon: Annotated[float, Limits(above=0, at_most=1)] = 1e-6
    weight_decay: Annotated[float, Limits(at_least=0, at_most=100)] = 0.01  # decoupled
    decay_norms: bool = True  # decay also LayerNorms and biases, as fairseq does; BERT does not
    clip: Weight = 1.0  # largest global gradient norm; 0 disables clipping
    label_smoothing: Share = 0.0  # in training only

    precision: Precision = "auto"  # auto: bf16 where it was measured to help, see _precision.py
    device: Device = "auto"  # "cpu", "cuda", "mps" or "auto"

    log_every: Count = 10  # updates per line of log.jsonl
    evaluate_every: CountOrNone = 0  # updates between evaluations; 0: at the end only
    save_every: CountOrNone = 500  # updates between checkpoints; 0: at the end only
    keep_last: Count = 2  # recent checkpoints that stay resumable

    def __post_init__(self) -> None:
        check_settings(self, "training")
        if self.end_learning_rate > self.learning_rate:
            raise UserError(
                "training.end_learning_rate must be at most training.learning_rate. Got "
                f"{self.end_learning_rate} and {self.learning_rate}. Lower it, or leave it out for 0."
            )
        if self.learning_rate * self.weight_decay >= 1:
            raise UserError(
                "training.learning_rate times training.weight_decay must be below 1: an update reduces "
                f"weights by that share. Got {self.learning_rate} and {self.weight_decay}. Lower one of them."
            )

    @property
    def warmup_updates(self) -> int:
        """Number of warm-up updates, from either form of the setting."""
        return round(self.warmup * self.updates) if self.warmup < 1 else round(self.warmup)
