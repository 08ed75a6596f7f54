"""Repeated random tokens: text whose only regularity is the repetition."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.flow import PaddedBatch, Reader, Stream
from infoflow.foundation import stream
from infoflow.models import start_token_id


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Repeats:
    """Sequences of one stack: special tokens, `length` random tokens repeated `repeats` times, special tokens."""

    ids: Int[Tensor, "sequence token"]
    content: Bool[Tensor, " token"]  # positions of random tokens
    length: int

    @property
    def first(self) -> Int[Tensor, " place"]:
        """Positions in the first repeat."""
        return torch.nonzero(self.content).ravel()[: self.length]


def stream_of(ids: Int[Tensor, "sequence token"], content: Bool[Tensor, " token"]) -> Stream:
    """Sequences of one length without padding, in which only the `content` counts."""
    shape = ids.shape
    return Stream(
        input_ids=ids,
        real=torch.ones(shape, dtype=torch.bool),
        valid=content.expand(shape),
        counted=torch.ones(shape, dtype=torch.bool),
        labels=torch.full(shape, -100),
        position=torch.arange(shape[1]).expand(shape),
        words=torch.full(shape, -1),
    )


def make_repeats(reader: Reader, stack: str, num: int, length: int, repeats: int, seed: int) -> Repeats | None:
    """Random tokens of the corpus's vocabulary, unique within a repeat; fewer if the model has fewer positions.

    None if the model has too few positions for two tokens, or the vocabulary is too small.
    """
    before, after = template(reader, stack)
    model = reader.model
    limit = model.max_tokens if stack == reader.source_stack else model.max_target_tokens
    room = length if limit is None else (limit - len(before) - len(after)) // repeats
    vocabulary = np.flatnonzero(reader.frequencies[stack])
    length = min(length, room, len(vocabulary))
    if length < 2:
        return None
    generator = stream("repeats", seed, stack)
    once = np.stack([generator.permutation(vocabulary)[:length] for _ in range(num)])
    ends = [np.tile(np.array(ids, dtype=np.int64), (num, 1)) for ids in (before, after)]
    ids = np.concatenate([ends[0], np.tile(once, (1, repeats)), ends[1]], axis=1)
    content = torch.zeros(ids.shape[1], dtype=torch.bool)
    content[len(before) : len(before) + length * repeats] = True
    return Repeats(ids=torch.from_numpy(ids), content=content, length=length)


def batches(texts: dict[str, Repeats], size: int) -> Iterator[PaddedBatch]:
    """The sequences of all stacks, `size` at a time; a sequence's number is its sentence id."""
    num = len(next(iter(texts.values())).ids)
    for rows in np.split(np.arange(num), range(size, num, size)):
        parts = {stack: stream_of(text.ids[rows], text.content) for stack, text in texts.items()}
        yield PaddedBatch(rows=rows, lines=rows, sentence_ids=rows, streams=parts)


def template(reader: Reader, stack: str) -> tuple[list[int], list[int]]:
    """Special tokens before and after a text."""
    if stack != reader.source_stack:
        return [start_token_id(reader.model)], []
    tokenizer: PreTrainedTokenizerBase = reader.tokenizer(stack)
    encoded = tokenizer("a a", return_special_tokens_mask=True)
    ids, special = list(encoded["input_ids"]), np.array(encoded["special_tokens_mask"], dtype=bool)
    inside = np.flatnonzero(~special)
    return ids[: inside[0]], ids[inside[-1] + 1 :]
