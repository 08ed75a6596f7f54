"""Roles of tokens in a sentence: special tokens by name, punctuation, custom tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from infoflow.flow import Reader, Stream
from infoflow.foundation import UserError, is_punctuation

SPECIAL = "special"
"""Every special token."""
PUNCTUATION = "punctuation"
NAMED = ("cls", "sep", "bos", "eos")
"""Special tokens by the tokenizer's names; a token with two names (XLM-R's) has both roles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Roles:
    """Token ids by stack and role."""

    ids: Mapping[str, Mapping[str, tuple[int, ...]]]

    @classmethod
    def of(cls, reader: Reader, punctuation: Sequence[str] | None = None, custom: Sequence[str] = ()) -> "Roles":
        """The roles in the texts of `reader`.

        Args:
            reader: Reader of the corpus.
            punctuation: Texts of the tokens that count as punctuation; None: all Unicode punctuation, in any script.
                [@clark2019] count only `.` and `,`.
            custom: Further roles, each a token of the vocabulary; unknown tokens raise a UserError.
        """
        stacks = list(reader.frequencies)
        tables = {
            stack: {
                **_named(reader.tokenizer(stack)),
                PUNCTUATION: _in_unicode(reader, stack)
                if punctuation is None
                else _spelled(reader.tokenizer(stack), punctuation),
            }
            for stack in stacks
        }
        for token in custom:
            found = {stack: _token(reader.tokenizer(stack), token) for stack in stacks}
            if not any(found.values()):
                raise UserError(
                    f"A role must be one of {', '.join((SPECIAL, PUNCTUATION, *NAMED))}, or a token of the vocabulary "
                    f"of {reader.model.name}. Got {token}."
                )
            for stack, ids in found.items():
                tables[stack][token] = ids
        return cls(ids=tables)

    def where(self, stream: Stream, stack: str, role: str) -> Bool[Tensor, "sentence token"]:
        """Which tokens of the stack have the role."""
        if role == SPECIAL:
            return stream.real & ~stream.valid
        ids = torch.tensor(self.ids[stack][role], dtype=stream.input_ids.dtype, device=stream.input_ids.device)
        return torch.isin(stream.input_ids, ids) & stream.real


def _named(tokenizer: PreTrainedTokenizerBase) -> dict[str, tuple[int, ...]]:
    ids = {role: getattr(tokenizer, f"{role}_token_id", None) for role in NAMED}
    return {role: () if index is None else (int(index),) for role, index in ids.items()}


def _in_unicode(reader: Reader, stack: str) -> tuple[int, ...]:
    tokenizer = reader.tokenizer(stack)
    return tuple(index for index in reader.symbols(stack) if is_punctuation(tokenizer.decode([index]).strip()))


def _spelled(tokenizer: PreTrainedTokenizerBase, punctuation: Sequence[str]) -> tuple[int, ...]:
    marks = [tokenizer.encode(mark, add_special_tokens=False) for mark in punctuation]
    marks += [tokenizer.encode(f"a {mark}", add_special_tokens=False)[-1:] for mark in punctuation]
    return tuple(sorted({ids[-1] for ids in marks if ids and tokenizer.decode(ids[-1:]).strip() in punctuation}))


def _token(tokenizer: PreTrainedTokenizerBase, token: str) -> tuple[int, ...]:
    index = tokenizer.get_vocab().get(token)
    return () if index is None else (int(index),)
