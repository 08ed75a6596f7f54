"""The settings of one training run."""

from dataclasses import dataclass
from typing import Literal

from infoflow.foundation import UserError

Schedule = Literal["linear", "polynomial", "inverse_sqrt", "constant"]
Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How long, how fast and how exactly to train; the same for every objective of a study."""

    updates: int = 2000  # optimiser steps
    max_source_tokens: int | None = None  # stop earlier, at the first update that reaches this many source tokens
    batch_tokens: int = 2048  # padded *source* tokens of one update, over all processes
    batch_sentences: int | None = None  # at most this many sentences in one update
    micro_tokens: int = 4096  # padded tokens of one forward pass, source and target together; changes memory only
    seed: int = 0  # data order, noise and dropout; the initialisation has its own

    learning_rate: float = 1.5e-3  # peak
    warmup: float = 0.08  # updates of linear rise; below 1, a share of `updates`
    schedule: Schedule = "linear"  # after the warm-up
    end_learning_rate: float = 0.0  # linear and polynomial fall to this
    power: float = 1.0  # of the polynomial
    count_from: Literal["one", "fairseq"] = "one"  # fairseq reads its counter late: its first two updates share a rate

    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    weight_decay: float = 0.01  # decoupled
    decay_norms: bool = True  # decay also LayerNorms and biases, as fairseq does; BERT does not
    clip: float = 1.0  # largest global gradient norm; 0 switches clipping off
    label_smoothing: float = 0.0  # in training only

    precision: Precision = "auto"  # auto: bf16 where it was measured to help, see _precision.py
    device: str = "auto"  # "cpu", "cuda", "mps" or "auto"

    log_every: int = 10  # updates per line of log.jsonl
    evaluate_every: int = 0  # updates between evaluations; 0: at the end only
    save_every: int = 500  # updates between checkpoints; 0: at the end only
    keep_last: int = 2  # recent checkpoints that stay resumable
    keep_log_spaced: bool = True  # keep the weights of updates 0, 1, 2, 4, 8, ... for studies of learning

    def __post_init__(self) -> None:
        _check(self.updates >= 1, "updates", "at least 1", self.updates)
        _check(self.batch_tokens >= 1, "batch_tokens", "at least 1", self.batch_tokens)
        _check(self.micro_tokens >= 1, "micro_tokens", "at least 1", self.micro_tokens)
        _check(self.learning_rate > 0, "learning_rate", "positive", self.learning_rate)
        _check(self.warmup >= 0, "warmup", "0 or more updates, or a share below 1", self.warmup)
        _check(0 <= self.label_smoothing < 1, "label_smoothing", "in [0, 1)", self.label_smoothing)
        _check(self.log_every >= 1, "log_every", "at least 1", self.log_every)
        _check(self.keep_last >= 1, "keep_last", "at least 1", self.keep_last)

    @property
    def warmup_updates(self) -> int:
        """Updates of the warm-up, whichever way it was given."""
        return round(self.warmup * self.updates) if self.warmup < 1 else round(self.warmup)


def _check(holds: bool, name: str, constraint: str, value: object) -> None:
    if not holds:
        raise UserError(f"{name} must be {constraint}. Got {value}.")
