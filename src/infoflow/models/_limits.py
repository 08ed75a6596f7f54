"""The longest sequence that a model has positions for."""

from torch import nn
from transformers import PreTrainedModel

from ._anatomy import Anatomy


def longest_sequence(module: PreTrainedModel, anatomy: Anatomy, stack: str) -> int | None:
    """Tokens that a stack takes at most, special ones included; None where nothing limits them (T5).

    The size of the position table, less the rows that RoBERTa keeps for padding and BART and OPT for an offset; for
    rotary positions, which are computed, what the configuration says that the model was trained for.
    """
    for name, child in module.named_modules():
        if isinstance(child, nn.Embedding) and _is_position_table(name) and _in_stack(name, anatomy, stack):
            padding = 0 if child.padding_idx is None else child.padding_idx + 1
            return child.num_embeddings - padding - int(getattr(child, "offset", 0))
    config = getattr(module.config, stack, module.config)
    return getattr(config, "max_position_embeddings", None)


def _is_position_table(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last == "wpe" or "position" in last


def _in_stack(name: str, anatomy: Anatomy, stack: str) -> bool:
    if len(anatomy.stacks) == 1:
        return True
    return next((part for part in name.split(".") if part in ("encoder", "decoder")), None) == stack
