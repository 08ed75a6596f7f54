"""A Hugging Face model with infoflow's metadata, and the outputs of single modules in each block."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from infoflow._transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from infoflow.foundation import UserError, digest, shown_by

from ._anatomy import Anatomy
from ._first_pass import output_embeddings
from ._modules import hooked
from ._placed import input_device, loaded
from ._tokenizers import reading_of


def longest_sequence(module: PreTrainedModel, anatomy: Anatomy, stack: str, tables: Sequence[str]) -> int | None:
    """Maximum number of tokens of a stack, special ones included; None if unlimited (T5).

    This is the size of the position table, minus the rows that RoBERTa reserves for padding and BART and OPT for an
    offset. Rotary positions have no table, so the length in the configuration counts (for a model of text and images,
    that of its text part). `tables` are the position tables that a forward pass on text reads, out of possibly more.
    """
    for name in tables:
        table = module.get_submodule(name)
        within = next((part for part in name.split(".") if part in ("encoder", "decoder")), None)
        if isinstance(table, nn.Embedding) and (len(anatomy.stacks) == 1 or within == stack):
            padding = 0 if table.padding_idx is None else table.padding_idx + 1
            return table.num_embeddings - padding - int(getattr(table, "offset", 0))
    part = getattr(module.config, stack, None)
    config = part if isinstance(part, PreTrainedConfig) else module.config
    # The method may guess among several parts; if there are none, the configuration is the text's.
    config = config.get_text_config() if config.sub_configs else config
    longest = getattr(config, "max_position_embeddings", None)
    return None if longest is None or longest < 1 else longest  # XLNet has -1


def position_tables(module: nn.Module) -> dict[str, nn.Module]:
    """Every position table by name, whatever its use."""
    tables = {name: child for name, child in module.named_modules() if isinstance(child, nn.Embedding)}
    last = {name: name.rpartition(".")[2] for name in tables}
    return {name: table for name, table in tables.items() if last[name] == "wpe" or "position" in last[name]}


Task = Literal["causal-lm", "masked-lm", "seq2seq", "encoder"]
"""Kind of the model's predictions; "encoder": none."""

# Properties of a checkpoint or machine that do not affect the model's function.
_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "_commit_hash")


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model checked by `load_model`, in evaluation mode."""

    name: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None  # for the input text; None: only token ids are accepted
    target_tokenizer: PreTrainedTokenizerBase | None  # for the output text, if it differs from the input's
    anatomy: Anatomy
    task: Task  # what its head predicts; "encoder": it has no language-model head
    pad_token_id: int
    pads: bool = True  # False: padding changes what it computes, so only sentences of equal length share a batch
    position_tables: tuple[str, ...] = ()  # modules with the text's position embeddings

    _repr_html_ = shown_by("model_shown")

    def __repr__(self) -> str:
        family = type(self.module).__name__
        return f"Model({self.name!r}, {family}, {self.task}, {self.device})\n{self.anatomy!r}"

    @property
    def device(self) -> torch.device:
        """The device of its inputs; a model that accelerate placed also has layers on other devices."""
        return input_device(self.module)

    @cached_property
    def num_outputs(self) -> float:
        """Number of token ids that it can predict: ImageGPT predicts all but its start token. Infinite if unknown."""
        return getattr(output_embeddings(self.module), "out_features", math.inf)

    @cached_property
    def max_tokens(self) -> int | None:
        """Longest input in tokens, special ones included; None if unlimited."""
        return longest_sequence(self.module, self.anatomy, self.anatomy.reads.name, self.position_tables)

    @cached_property
    def max_target_tokens(self) -> int | None:
        """Longest output of a sequence-to-sequence model; the longest input of any other."""
        return longest_sequence(self.module, self.anatomy, self.anatomy.predicts.name, self.position_tables)

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits of everything that a result about this model depends on.

        These are the weights, the configuration, and the languages and the prefix chosen by the caller.
        """
        hashed = hashlib.sha256()
        for name, tensor in loaded(self.module, sorted(self.module.state_dict().items())):
            hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hashed.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        reading = reading_of(self.tokenizer)
        how = {"reading": reading} if reading.chosen else {}
        return digest({"weights": hashed.hexdigest(), "config": _plain(self.module.config.to_dict())} | how)

    @property
    def output_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer of the predicted tokens: the target's for an encoder–decoder, otherwise the input's."""
        return (self.target_tokenizer if self.task == "seq2seq" else None) or self.tokenizer

    def require_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, or a UserError with instructions."""
        if self.tokenizer is None:
            raise UserError(
                f"{self.name} has no tokenizer, so it takes token ids but no text. Name one: "
                'load_model(..., tokenizer="folder or name"), or --tokenizer on the command line.'
            )
        return self.tokenizer


def _plain(value: Any) -> Any:
    """A configuration as JSON, without its volatile entries."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if key not in _VOLATILE}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def feed_forward_outputs(model: Model, stack: str) -> list[str]:
    """For each block, the name of the module that returns the feed-forward output, before the residual connection.

    If layers share their modules (ALBERT), the name is the same for all blocks.
    """
    by_block: dict[str, set[str]] = {}
    layers = model.anatomy.stack(stack).layers
    for group in model.anatomy.parameter_groups:
        if group.component == "mlp_out" and group.stack == stack and group.layer is not None:
            name = group.slice.parameter.rpartition(".")[0]
            by_block.setdefault(layers[group.layer].block, set()).add(name)
    found = [sorted(by_block.get(layer.block, ())) for layer in layers]
    for layer, names in zip(layers, found, strict=True):
        if len(names) != 1:
            several = "no feed-forward output" if not names else f"{len(names)} of them, as in a mixture of experts"
            raise UserError(
                f"Each block of {model.name} must have one module that returns its feed-forward output. Block "
                f"{layer.index} has {several}."
            )
    return [names[0] for names in found]


OutputEdit = Callable[[int, Tensor], Tensor | None]
"""Receives a layer and its module's output; may return another output."""


@contextmanager
def module_outputs(model: Model, modules: Sequence[str], edit: OutputEdit) -> Iterator[None]:
    """Show `edit` the output of each layer's module inside the `with` block.

    `modules` names a module for each layer, as from `feed_forward_outputs`; layers that share one (ALBERT) have the
    same name and must then all run.

    >>> from infoflow.models import feed_forward_outputs
    >>> names, sizes = feed_forward_outputs(model, "encoder"), {}
    >>> with torch.no_grad(), module_outputs(model, names, lambda layer, output: sizes.update({layer: output.shape})):
    ...     logits = model.module(torch.tensor([[5, 6, 7]])).logits
    >>> sizes[2]
    torch.Size([1, 3, 16])
    """
    layers: dict[str, list[int]] = {}
    for layer, name in enumerate(modules):
        layers.setdefault(name, []).append(layer)
    calls: dict[str, int] = {}

    def restart(module: nn.Module, args: Any) -> None:
        calls.clear()

    def shown(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor | None]:
        def after(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
            call = calls.get(name, 0)
            calls[name] = call + 1
            return edit(layers[name][call % len(layers[name])], output)

        return after

    shows = [model.module.get_submodule(name).register_forward_hook(shown(name)) for name in layers]
    with hooked([model.module.register_forward_pre_hook(restart), *shows]):
        yield
