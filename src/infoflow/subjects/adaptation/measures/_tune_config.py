"""The settings of tuning a model for a task."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from infoflow.foundation import (
    Count,
    CountOrNone,
    Device,
    LearningRate,
    Limits,
    MaxLength,
    Seed,
    Share,
    UserError,
    Weight,
    check_settings,
)

Method = Literal["full", "frozen", "top", "decay", "lora"]
"""See `METHODS`."""
Control = Literal["", "shuffled-labels"]
Seeds = Annotated[tuple[Seed, ...], Limits(filled=True, distinct=True)]
Rates = Annotated[tuple[LearningRate, ...], Limits(distinct=True)]
Decay = Annotated[float, Limits(above=0, at_most=1)]

DEFAULT_RATES: dict[str, tuple[float, ...]] = {
    "full": (3e-4, 1e-4, 5e-5, 3e-5),
    "frozen": (3e-2, 1e-2, 3e-3, 1e-3),
    "top": (3e-4, 1e-4, 5e-5, 3e-5),
    "decay": (3e-4, 1e-4, 5e-5, 3e-5),
    "lora": (2e-3, 1e-3, 5e-4, 2e-4),
}
"""Default peak learning rates to try.

Those of `full` are the grid of [@turc2019]; a head alone, and adapters that start at zero, need larger steps.
"""

# Settings that change where and how often something is saved, not what is learned; `seeds` may grow.
_FREE = ("seeds", "save_every", "device")


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneSettings:
    """How a model is tuned: the settings of a plan."""

    layers: Count = 2  # for `top`: number of tuned blocks below the head
    rank: Annotated[int, Limits(at_least=1, at_most=4096)] = 8  # for `lora`: rank of each adapter
    learning_rates: Rates = ()  # peaks to try, selected on dev; empty: the method's own grid
    epochs: Count = 4
    patience: CountOrNone = 0  # passes without gain on dev before training stops with its best weights; 0: never
    batch_examples: Count = 32
    max_length: MaxLength = 128  # maximum number of input tokens, special ones included
    max_target: CountOrNone = 0  # maximum number of target tokens, end included; 0: the task's own, 64 at most
    seeds: Seeds = (0, 1, 2)  # seeds of head, data order and dropout; the learning rate is chosen with the first


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneConfig(TuneSettings):
    """How a model is tuned; the same for every model of a study."""

    method: Method = "full"
    layer_decay: Decay = 0.8  # for `decay`: factor on the learning rate from one block to the one below
    alpha: Annotated[float, Limits(above=0, at_most=1e5)] = 16.0  # for `lora`: adapters are scaled by alpha / rank
    head_epochs: Count = 40  # for `frozen`, instead of `epochs`: the body's output is cached
    warmup: Share = 0.1  # share of all updates; then the rate falls linearly to 0
    weight_decay: Annotated[float, Limits(at_least=0, at_most=100)] = 0.01
    clip: Weight = 1.0  # largest global gradient norm; 0 disables clipping
    examples: CountOrNone = 0  # training examples, chosen by content and nested in larger subsets; 0: all
    control: Control = ""

    answers: CountOrNone = 200  # test examples whose answers are stored
    save_every: CountOrNone = 0  # updates between checkpoints; 0: after each epoch, for small models after several
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # for tuning; scores are computed in fp32
    device: Device = "auto"

    def __post_init__(self) -> None:
        check_settings(self, "tune")
        if max(self.rates) * self.weight_decay >= 1:
            raise UserError(
                "tune.learning_rates times tune.weight_decay must be below 1: an update reduces every "
                f"weight by that share. Got {max(self.rates)} and {self.weight_decay}. Lower one of them."
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates to try."""
        return tuple(map(float, self.learning_rates or DEFAULT_RATES[self.method]))

    @property
    def passes(self) -> int:
        """Number of passes over the training examples."""
        return self.head_epochs if self.method == "frozen" else self.epochs

    @property
    def way(self) -> str:
        """Name of the models' folder, which separates variants of tuning on the same task."""
        return "-".join(str(one) for one in (self.method, self.examples, self.control) if one)

    def key(self) -> dict[str, Any]:
        """The settings that determine the tuned models, as flat JSON."""
        values = {name: value for name, value in asdict(self).items() if name not in _FREE}
        for name in ("patience", "max_target"):
            if not values[name]:  # as in versions without this field
                del values[name]
        return {**values, "learning_rates": list(self.rates), "first_seed": self.seeds[0]}
