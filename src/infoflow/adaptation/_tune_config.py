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
Seeds = Annotated[tuple[Seed, ...], Limits(filled=True)]
Decay = Annotated[float, Limits(above=0, at_most=1)]

DEFAULT_RATES: dict[str, tuple[float, ...]] = {
    "full": (3e-4, 1e-4, 5e-5, 3e-5),
    "frozen": (3e-2, 1e-2, 3e-3, 1e-3),
    "top": (3e-4, 1e-4, 5e-5, 3e-5),
    "decay": (3e-4, 1e-4, 5e-5, 3e-5),
    "lora": (2e-3, 1e-3, 5e-4, 2e-4),
}
"""Peaks that are tried where none are given. Those of `full` are the grid of [@turc2019]; a head alone, and adapters
that begin at zero, need larger steps."""

# Settings that change where and how often something is kept, not what is learned; `seeds` may grow.
_FREE = ("seeds", "save_every", "device")


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneConfig:
    """How a model is tuned; the same for every model of a study."""

    method: Method = "full"
    layers: Count = 2  # of `top`: blocks below the head that are tuned, counted from the top
    layer_decay: Decay = 0.8  # of `decay`: what the learning rate is multiplied by from one block to the one below
    rank: Annotated[int, Limits(at_least=1, at_most=4096)] = 8  # of `lora`: of each adapter
    alpha: Annotated[float, Limits(above=0, at_most=1e5)] = 16.0  # of `lora`: adapters count alpha / rank times

    learning_rates: tuple[LearningRate, ...] = ()  # peaks; the best on dev is taken; none: the method's own grid
    epochs: Count = 4
    head_epochs: Count = 40  # of `frozen`, in place of `epochs`: what the body computes is looked up
    patience: CountOrNone = 0  # passes without gain on dev that end a training, whose best weights stay; 0: never
    batch_examples: Count = 32
    warmup: Share = 0.1  # of all updates; then the rate falls linearly to 0
    weight_decay: Annotated[float, Limits(at_least=0, at_most=100)] = 0.01
    clip: Weight = 1.0  # largest global gradient norm; 0 switches clipping off
    max_length: MaxLength = 128  # tokens of an input, special ones included
    max_target: CountOrNone = 0  # tokens of a text to write, its end included; 0: as the task says, 64 at most

    seeds: Seeds = (0, 1, 2)  # of head, data order and dropout; the learning rate is chosen with the first
    examples: CountOrNone = 0  # of training, chosen by content and nested in larger subsets; 0: all
    control: Control = ""

    answers: CountOrNone = 200  # test examples whose answers are kept
    save_every: CountOrNone = 0  # updates between checkpoints; 0: one after each epoch, of small models after several
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # of tuning; scores are computed in fp32
    device: Device = "auto"

    def __post_init__(self) -> None:
        check_settings(self, "tune")
        for name in ("seeds", "learning_rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise UserError(f"tune.{name} must each be given once. Got {', '.join(map(str, values))}.")
        if max(self.rates) * self.weight_decay >= 1:
            raise UserError(
                "tune.learning_rates times tune.weight_decay must be below 1: an update takes that share off every "
                f"weight. Got {max(self.rates)} and {self.weight_decay}. Lower one of them."
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried."""
        return tuple(map(float, self.learning_rates or DEFAULT_RATES[self.method]))

    @property
    def passes(self) -> int:
        """Over the training examples."""
        return self.head_epochs if self.method == "frozen" else self.epochs

    @property
    def way(self) -> str:
        """Name of the folder of the models, beside those of the same task that were tuned in other ways."""
        return "-".join(str(one) for one in (self.method, self.examples, self.control) if one)

    def key(self) -> dict[str, Any]:
        """What tuned models follow from, as flat JSON."""
        values = {name: value for name, value in asdict(self).items() if name not in _FREE}
        for name in ("patience", "max_target"):
            if not values[name]:  # as it was in versions without it
                del values[name]
        return {**values, "learning_rates": list(self.rates), "first_seed": self.seeds[0]}
