"""The maximum sequence length of a model."""

from collections.abc import Sequence

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from ._anatomy import Anatomy


def longest_sequence(module: PreTrainedModel, anatomy: Anatomy, stack: str, tables: Sequence[str]) -> int | None:
    """Maximum number of tokens of a stack, special ones included; None if unlimited (T5).

    The size of the position table, minus the rows that RoBERTa reserves for padding and BART and OPT for an offset; for
    rotary positions, which are computed, the length in the configuration: for a model of text and images, the
    configuration of its text part.

    Args:
        module: The model.
        anatomy: Its stacks.
        stack: Name of the stack.
        tables: The position tables that a forward pass on text reads: a model of text and images has others too.
    """
    for name in tables:
        table = module.get_submodule(name)
        if isinstance(table, nn.Embedding) and _in_stack(name, anatomy, stack):
            padding = 0 if table.padding_idx is None else table.padding_idx + 1
            return table.num_embeddings - padding - int(getattr(table, "offset", 0))
    return getattr(_text_config(module.config, stack), "max_position_embeddings", None)


def position_tables(module: nn.Module) -> dict[str, nn.Module]:
    """Every position table by name, whatever its use."""
    return {
        name: child
        for name, child in module.named_modules()
        if isinstance(child, nn.Embedding) and _is_position_table(name)
    }


def _text_config(config: PreTrainedConfig, stack: str) -> PreTrainedConfig:
    part = getattr(config, stack, None)
    config = part if isinstance(part, PreTrainedConfig) else config
    # The method may guess among several parts; if there are none, the configuration is the text's.
    return config.get_text_config() if config.sub_configs else config


def _is_position_table(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last == "wpe" or "position" in last


def _in_stack(name: str, anatomy: Anatomy, stack: str) -> bool:
    if len(anatomy.stacks) == 1:
        return True
    return next((part for part in name.split(".") if part in ("encoder", "decoder")), None) == stack
