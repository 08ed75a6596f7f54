"""A Hugging Face model with infoflow's metadata."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from infoflow.foundation import UserError, digest, shown_by

from ._anatomy import Anatomy
from ._languages import reading_of
from ._limits import longest_sequence

Task = Literal["causal-lm", "masked-lm", "seq2seq", "encoder"]
"""Kind of the model's predictions; "encoder": none."""

# Properties of a checkpoint or machine that do not affect the model's function.
_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "_commit_hash")


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model checked by `load_model`, in evaluation mode."""

    name: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None  # of the input text; None: only token ids are accepted
    target_tokenizer: PreTrainedTokenizerBase | None  # of the output text if it differs from the input's
    anatomy: Anatomy
    task: Task  # what its head predicts; "encoder": it has no language-model head
    pad_token_id: int
    pads: bool = True  # False: padding changes what it computes, so only sentences of equal length share a batch
    position_tables: tuple[str, ...] = ()  # modules with the text's position embeddings

    _repr_html_ = shown_by("infoflow.report", "model_shown")

    def __repr__(self) -> str:
        family = type(self.module).__name__
        return f"Model({self.name!r}, {family}, {self.task}, {self.device})\n{self.anatomy!r}"

    @property
    def device(self) -> torch.device:
        return self.module.device

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
        for name, tensor in sorted(self.module.state_dict().items()):
            hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        reading = reading_of(self.tokenizer)
        how = {"reading": reading} if reading.chosen else {}
        return digest({"weights": hashed.hexdigest(), "config": _plain(self.module.config.to_dict())} | how)

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
