"""Which weights a tuning method changes, and how fast."""

from transformers import PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import Anatomy, discover

from ._depths import parameter_depths
from ._lora import add_adapters
from ._task import AbstractTask
from ._task_model import FreshModel
from ._tune_config import TuneConfig


def prepare(built: FreshModel, task: AbstractTask, config: TuneConfig, seed: int) -> PreTrainedModel:
    r"""Prepare a fresh model for tuning by `config.method`, in place.

    | method | what changes                                                                          |
    |--------|---------------------------------------------------------------------------------------|
    | full   | every weight                                                                          |
    | frozen | the head, and the pooler that it reads                                                |
    | top    | what comes after the blocks, and the last `layers` blocks                             |
    | decay  | every weight, at depth d with $\delta^{D - d}$ times the learning rate                 |
    | lora   | the same, and adapters of low rank beside queries and values, see `add_adapters`      |

    δ is `layer_decay` and D the depth of the head, see `parameter_depths`.

    Raises:
        UserError: The model has no such weights.

    Source: layer-wise decay [@clark2020electra], where the last block's factor is δ²; here it is δ.
    """
    module = built.module
    if config.method == "frozen":
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
            f"method = frozen trains a head on fixed features, and {task.task} ({task.shape}) has no new head: "
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
