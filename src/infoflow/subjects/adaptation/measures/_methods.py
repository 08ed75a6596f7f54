"""Which weights a tuning method changes, and how fast."""

import re

from transformers import PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import Anatomy, discover

from ._lora import add_adapters
from ._task import AbstractTask
from ._task_model import FreshModel
from ._tune_config import TuneConfig

_IN_FRONT = re.compile(r"embed|(^|_)emb($|_)|position|token_type|relative_attention_bias|^(shared|wte|wpe|project_in)$")
"""Parts of names of parameters before the first block: embeddings, their norms and projections, distance biases."""


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


def parameter_depths(module: PreTrainedModel, anatomy: Anatomy, fresh: frozenset[str]) -> tuple[dict[str, int], int]:
    """The depth of each parameter, and the depth of the head, which is the largest.

    | depth | parameters                                                                                            |
    |-------|-------------------------------------------------------------------------------------------------------|
    | 0     | embeddings of tokens, positions and distances wherever they are read, their norms and projections     |
    | b + 1 | block b, counted over the encoder and then the decoder; a norm behind an encoder's last block is of it |
    | B + 1 | what comes after the last of B blocks (a final norm, a pooler, a head), and all that is `fresh`       |

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
    """Whether a parameter outside blocks belongs to embeddings.

    DeBERTa's encoder normalises its distance embeddings.
    """
    owner, _, _ = name.rpartition(".")
    parent, _, last = owner.rpartition(".")
    if last == "LayerNorm" and hasattr(module.get_submodule(parent), "rel_embeddings"):
        return True
    return any(_IN_FRONT.search(part) for part in name.split("."))
