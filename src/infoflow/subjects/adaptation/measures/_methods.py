"""The settings of tuning: which weights a method changes, how fast, and when it stops."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, final

import torch
from torch import Tensor, nn

from infoflow._transformers import Conv1D, PreTrainedModel
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
    hash64,
)
from infoflow.models import Anatomy, discover, learning_parameters
from infoflow.training import Step, TrainingHook

from ._tables import FROZEN_METHODS
from ._task import AbstractTask
from ._task_model import FreshModel

Method = Literal["full", "frozen", "mix", "top", "decay", "lora"]  # see `METHODS`
Control = Literal["", "shuffled-labels"]
Seeds = Annotated[tuple[Seed, ...], Limits(filled=True, distinct=True)]
Rates = Annotated[tuple[LearningRate, ...], Limits(distinct=True)]
Decay = Annotated[float, Limits(above=0, at_most=1)]

DEFAULT_RATES: dict[str, tuple[float, ...]] = {
    "full": (3e-4, 1e-4, 5e-5, 3e-5),
    "frozen": (3e-2, 1e-2, 3e-3, 1e-3),
    "mix": (3e-2, 1e-2, 3e-3, 1e-3),
    "top": (3e-4, 1e-4, 5e-5, 3e-5),
    "decay": (3e-4, 1e-4, 5e-5, 3e-5),
    "lora": (2e-3, 1e-3, 5e-4, 2e-4),
}
"""Default peak learning rates to try.

Rates for `full` are the grid of [@turc2019]; a head alone, and adapters that start at zero, need larger steps.
"""

# Settings that change where and how often something is saved, not what is learned; seeds may be added later.
_FREE = ("seeds", "save_every", "device")


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneSettings:
    """How a model is tuned: the settings of a plan."""

    layers: Count = 2  # for `top`: number of tuned blocks below the head
    rank: Annotated[int, Limits(at_least=1, at_most=4096)] = 8  # for `lora`: rank of each adapter
    learning_rates: Rates = ()  # peak rates to try, selected on dev; empty: the method's own grid
    epochs: Count = 4
    patience: CountOrNone = 0  # epochs without gain on dev before training stops with its best weights; 0: never
    batch_examples: Count = 32
    max_length: MaxLength = 128  # maximum number of input tokens, special ones included
    max_target: CountOrNone = 0  # maximum number of target tokens, end included; 0: the task's default, at most 64
    seeds: Seeds = (0, 1, 2)  # seeds of head, data order and dropout; the learning rate is chosen with the first


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneConfig(TuneSettings):
    """How a model is tuned; the same for every model of a study."""

    method: Method = "full"
    layer_decay: Decay = 0.8  # for `decay`: factor on the learning rate from one block to the one below
    alpha: Annotated[float, Limits(above=0, at_most=1e5)] = 16.0  # for `lora`: adapters are scaled by alpha / rank
    head_epochs: Count = 40  # for `frozen` and `mix`, instead of `epochs`, since the body's output is cached
    warmup: Share = 0.1  # share of all updates; after it, the rate falls linearly to 0
    weight_decay: Annotated[float, Limits(at_least=0, at_most=100)] = 0.01
    clip: Weight = 1.0  # largest global gradient norm; 0 disables clipping
    examples: CountOrNone = 0  # training examples, chosen by content and nested in larger subsets; 0: all
    control: Control = ""

    answers: CountOrNone = 200  # test examples whose answers are stored
    save_every: CountOrNone = 0  # updates between checkpoints; 0: after one epoch, or several for small models
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # for tuning; scores are computed in fp32
    device: Device = "auto"

    def __post_init__(self) -> None:
        check_settings(self, "tune")
        if max(self.rates) * self.weight_decay >= 1:
            raise UserError(
                "tune.learning_rates times tune.weight_decay must be below 1, since an update reduces every "
                f"weight by that share. Got {max(self.rates)} and {self.weight_decay}. Lower one of them."
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates to try."""
        return tuple(map(float, self.learning_rates or DEFAULT_RATES[self.method]))

    @property
    def freezes(self) -> bool:
        """Whether the body stays as it was pretrained."""
        return self.method in FROZEN_METHODS

    @property
    def passes(self) -> int:
        """Number of epochs over the training examples, by the method."""
        return self.head_epochs if self.freezes else self.epochs

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


# Low-rank adapters for the query and value projections.


def add_adapters(module: PreTrainedModel, head: frozenset[str], *, rank: int, alpha: float, seed: int) -> None:
    r"""Add an adapter to each query and value projection; only the adapters and the `head` are trained.

    $$ W x \;\to\; W x + \tfrac{\alpha}{r} B A x $$

    A (r, in) is initialised at random from `seed`, and B (out, r) at 0, so that the model starts as the pretrained one.
    If a family keeps queries, keys and values in one matrix (GPT-2), the adapter covers all of it.

    Source: [@hu2022lora].
    """
    from peft import LoraConfig, inject_adapter_in_model

    targets = projections(discover(module.eval()))
    if not targets:
        raise UserError(
            f"method = lora adds adapters to query and value projections, but none are known in "
            f"{type(module).__name__}. Choose full, top, decay, frozen or mix."
        )
    turned = isinstance(module.get_submodule(targets[0]), Conv1D)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, fan_in_fan_out=turned, lora_dropout=0.0)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(hash64("adapters", seed) % 2**63)
        inject_adapter_in_model(config, module)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in head or "lora_" in name)


def projections(anatomy: Anatomy) -> list[str]:
    """Names of the modules that project to queries or values, in the order of the layers."""
    found = (
        projection.weight.parameter.removesuffix(".weight")
        for attention in anatomy.attentions()
        for projection in (attention.query, attention.value)
        if projection is not None
    )
    return list(dict.fromkeys(found))


def merge_adapters(module: PreTrainedModel) -> None:
    """Merge the adapters into the weights that they adapt, and remove them, in place."""
    for name, layer in list(_adapted(module)):
        layer.merge(safe_merge=True)
        module.set_submodule(name, layer.get_base_layer())


def _adapted(module: nn.Module) -> Iterator[tuple[str, Any]]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return ((name, child) for name, child in module.named_modules() if isinstance(child, BaseTunerLayer))


# Which weights a tuning method changes, and how fast.

_IN_FRONT = re.compile(r"embed|(^|_)emb($|_)|position|token_type|relative_attention_bias|^(shared|wte|wpe|project_in)$")
"""Pattern in names of parameters below the first block: embeddings, their norms and projections, distance biases."""


def prepare(built: FreshModel, task: AbstractTask, config: TuneConfig, seed: int) -> PreTrainedModel:
    r"""Prepare a fresh model for tuning by `config.method`, in place.

    | method | what changes                                                                          |
    |--------|---------------------------------------------------------------------------------------|
    | full   | every weight                                                                          |
    | frozen | the head, and the pooler that it reads                                                |
    | mix    | the same, and the head reads a learned mix of all states, see `LayerMix`              |
    | top    | everything above the blocks, and the last `layers` blocks                             |
    | decay  | every weight, at depth d with $\delta^{D - d}$ times the learning rate                 |
    | lora   | the head, and adapters of low rank on queries and values, see `add_adapters`      |

    δ is `layer_decay` and D the depth of the head, see `parameter_depths`.

    Source: layer-wise decay [@clark2020electra], where the last block's factor is δ²; here it is δ.
    """
    module = built.module
    if config.freezes:
        _require_head(built, task)
        _train_only(module, set(built.head))
    elif config.method in ("top", "decay"):
        _by_depth(built, discover(module.eval()), config)
    elif config.method == "lora":
        add_adapters(module, built.head, rank=config.rank, alpha=config.alpha, seed=seed)
    return module


def _require_head(built: FreshModel, task: AbstractTask) -> None:
    if not built.fresh:
        raise UserError(
            f"Methods frozen and mix train a head on fixed features, and {task.task} ({task.shape}) has no new head: "
            "the pretrained one writes the text. Choose full, top, decay or lora."
        )


def _by_depth(built: FreshModel, anatomy: Anatomy, config: TuneConfig) -> None:
    depths, top = parameter_depths(built.module, anatomy, built.fresh)
    if config.method == "top":
        if config.layers >= top:
            raise UserError(
                f"tune.layers must be at most the {top - 1} blocks of the model. Got {config.layers}. Lower it, or "
                "choose method full."
            )
        _train_only(built.module, {name for name, depth in depths.items() if depth >= top - config.layers})
        return
    for name, parameter in built.module.named_parameters():
        parameter.rate_scale = config.layer_decay ** (top - depths[name])  # type: ignore[attr-defined]
        parameter.decays_too = True  # type: ignore[attr-defined]


def _train_only(module: PreTrainedModel, names: set[str]) -> None:
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)


def parameter_depths(module: PreTrainedModel, anatomy: Anatomy, fresh: frozenset[str]) -> tuple[dict[str, int], int]:
    """The depth of each parameter, and the depth of the head, which is the largest.

    | depth | parameters                                                                                            |
    |-------|-------------------------------------------------------------------------------------------------------|
    | 0     | embeddings of tokens, positions and distances (in any stack), their norms and projections             |
    | b + 1 | block b, counted over the encoder and then the decoder, with the norm after an encoder's last block |
    | B + 1 | everything above the last of B blocks (a final norm, a pooler, a head), and all `fresh` parameters    |

    Blocks that share their weights (ALBERT) count as one. Parameters outside blocks are classified by name.
    """
    blocks = list(dict.fromkeys(layer.block for stack in anatomy.stacks for layer in stack.layers))
    inside = {block: depth for depth, block in enumerate(blocks, start=1)}
    # For all stacks but the last: the location of their modules, and the depth of their last block.
    ends = {
        f"{stack.layers[0].block.rpartition('.')[0].rpartition('.')[0]}.": inside[stack.layers[-1].block]
        for stack in anatomy.stacks[:-1]
    }
    top = len(blocks) + 1

    def depth(name: str) -> int:
        if name in fresh:
            return top
        if block := next((block for block in blocks if name.startswith(f"{block}.")), None):
            return inside[block]
        if _is_in_front(module, name):
            return 0
        return next((end for start, end in ends.items() if name.startswith(start)), top)

    return {name: depth(name) for name, _ in module.named_parameters()}, top


def _is_in_front(module: PreTrainedModel, name: str) -> bool:
    """Whether a parameter outside blocks belongs to embeddings; DeBERTa normalises its distance embeddings."""
    owner, _, _ = name.rpartition(".")
    parent, _, last = owner.rpartition(".")
    if last == "LayerNorm" and hasattr(module.get_submodule(parent), "rel_embeddings"):
        return True
    return any(_IN_FRONT.search(part) for part in name.split("."))


# Stops tuning when there is no further gain on development data, and restores the best weights.

_WEIGHT = "weight:"


@final
class EarlyStop(TrainingHook):
    """Scores the model every `every` updates, and ends the training after `patience` scores without an improvement.

    Whenever training ends, the weights of the best score are restored (of equal scores, the first).
    """

    name = "early-stop"

    def __init__(self, score: Callable[[PreTrainedModel], float], every: int, patience: int) -> None:
        self._score, self._every, self._patience = score, every, patience
        self._best, self._waited = float("-inf"), 0
        self._weights: dict[str, Tensor] = {}

    @property
    def ended(self) -> bool:
        """Whether there were `patience` scores without an improvement."""
        return self._waited >= self._patience

    def on_step_end(self, step: Step) -> None:
        """Score the model every `every` updates."""
        if step.update % self._every:
            return
        device = next(step.module.parameters()).device.type
        with torch.autocast(device, enabled=False):  # scores are computed in fp32, as in the final evaluation
            score = self._score(step.module)
        if score <= self._best:
            self._waited += 1
            return
        self._best, self._waited = score, 0
        self._weights = {
            name: weight.detach().cpu().clone() for name, weight in learning_parameters(step.module).items()
        }

    def on_train_end(self, module: PreTrainedModel) -> None:
        """Restore the best weights."""
        with torch.no_grad():
            for name, weight in learning_parameters(module).items():
                if name in self._weights:
                    weight.copy_(self._weights[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The best score and its weights, and the number of scores since then."""
        numbers = {"best": torch.tensor(self._best, dtype=torch.float64), "waited": torch.tensor(self._waited)}
        return numbers | {f"{_WEIGHT}{name}": weight for name, weight in self._weights.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from the output of `state_dict`."""
        if not state:
            return
        self._best, self._waited = float(state["best"]), int(state["waited"])
        self._weights = {
            name.removeprefix(_WEIGHT): weight for name, weight in state.items() if name.startswith(_WEIGHT)
        }
