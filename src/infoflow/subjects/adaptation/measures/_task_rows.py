"""The examples of a task's part as token ids, and the functions that run a model with a task head on them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import UserError, current_display, digest
from infoflow.models import evaluating, without_cache
from infoflow.objectives import Batch, Example
from infoflow.training import ExampleRows, TrainingData, micro_batches

from ._task import AbstractTask

SEGMENTS, LABELS = "token_type_ids", "labels"
"""Keys of `Example.labels`: which text of a pair each token belongs to, and the target."""
_AT_ONCE = 1024  # texts per call of the tokenizer


class Tokens(NamedTuple):
    """One text or pair of texts, special tokens included."""

    ids: list[int]
    segments: list[int] | None
    """For a pair, 0 for the first text's tokens and 1 for the second's.

    None for a single text, or if the tokenizer separates the texts only by special tokens.
    """
    cut: bool = False  # whether it was truncated


class TaskRows:
    """Examples of a part as `ExampleRows`: the tokens of a text or pair, or of each answer choice, and targets."""

    def __init__(
        self,
        tokens: Sequence[Sequence[Tokens]],
        ids: Int[np.ndarray, " example"],
        digest: str,
        **fields: Sequence[np.ndarray] | np.ndarray,
    ) -> None:
        """`ids` are `Corpus.ids`; `fields` are targets by their name in a batch, one per example or one per token."""
        self._tokens, self._fields, self.digest = tokens, fields, digest
        self.sentence_ids: np.ndarray = ids
        self.lengths: np.ndarray = np.array(
            [len(each) * max(len(one.ids) for one in each) for each in tokens], dtype=np.int64
        )
        """Number of tokens of each example, with padding between its choices."""

    @classmethod
    def of(cls, tokens: Sequence[Tokens], corpus: Corpus, **fields: Sequence[np.ndarray] | np.ndarray) -> "TaskRows":
        """One text or pair per example; row i is row i of the corpus."""
        arrays = (
            [np.array([*one.ids, -1, *(one.segments or ()), -1], dtype=np.int64), *map(np.asarray, values)]
            for one, *values in zip(tokens, *fields.values(), strict=True)
        )
        hashed = rows_digest("task rows", (array.tobytes() for each in arrays for array in each))
        return cls([[one] for one in tokens], corpus.ids, hashed, **fields)

    def row(self, index: int) -> np.ndarray:
        """Token ids of an example, special tokens included; those of all choices, concatenated."""
        return np.concatenate(self._texts(index))

    def example(self, index: int) -> Example:
        """One text, which contains both texts of a pair, or one text per choice, with the segment of each token."""
        tokens = self._tokens[index]
        labels = {name: np.asarray(values[index]) for name, values in self._fields.items()}
        if tokens[0].segments is not None:
            segments = padded([one.segments or [] for one in tokens], 0)
            labels[SEGMENTS] = segments if len(tokens) > 1 else segments[0]
        return Example(texts=tuple(self._texts(index)), labels=labels)

    def _texts(self, index: int) -> list[np.ndarray]:
        return [np.array(one.ids, dtype=np.int64) for one in self._tokens[index]]


def padded(rows: Sequence[Sequence[int] | np.ndarray], value: int) -> np.ndarray:
    """Rows of unequal length, padded and stacked: int64 (row, token)."""
    found = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for index, row in enumerate(rows):
        found[index, : len(row)] = row
    return found


def rows_digest(kind: str, parts: Iterable[bytes]) -> str:
    """A digest of the rows of a part."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return digest([kind, hashed.hexdigest()])


def read_texts(
    tokenizer: PreTrainedTokenizerBase,
    first: Iterable[str],
    second: Iterable[str] | None,
    max_length: int,
    keep_second: bool = False,
) -> list[Tokens]:
    """Token ids of texts or pairs, with a note of how many were truncated.

    The longer text of a pair is truncated first or, with `keep_second`, the first text as far as possible. If a
    tokenizer joins a pair without a separator (as GPT-2's does), its separator or else its end-of-text token is added.
    """
    limit = min(max_length, int(min(tokenizer.model_max_length, 10**9)))
    reader = _Reader(tokenizer, limit, pairs=second is not None, keep_second=keep_second)
    rows = zip(first, strict=False) if second is None else zip(first, second, strict=True)
    found: list[Tokens] = []
    while part := list(islice(rows, _AT_ONCE)):
        found += reader.read(*map(list, zip(*part, strict=True)))
    if blank := sum(not one.ids for one in found):
        raise UserError(
            f"Every text must have a token that the tokenizer knows. {blank:,} of {len(found):,} texts have none.\n"
            "Leave those examples out, or use a tokenizer of their script."
        )
    if cut := sum(one.cut for one in found):
        current_display().note(f"Texts of the task truncated at {limit} tokens: {cut:,} of {len(found):,}.")
    return found


class _Reader:
    """Calls the tokenizer so that no text can produce a control token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, limit: int, pairs: bool, keep_second: bool) -> None:
        self._tokenizer, self._limit, self._pairs, self._keep_second = tokenizer, limit, pairs, keep_second
        specials = tokenizer.num_special_tokens_to_add(pair=pairs)
        self._mark = _separator(tokenizer) if pairs and specials == 0 else None
        self._room = limit - specials - (self._mark is not None)
        least = specials + (2 if pairs else 1) + (self._mark is not None)
        if limit < least:
            raise UserError(
                f"max_length must be at least {least}: one token of {'both texts of a pair' if pairs else 'a text'} "
                f"must fit, with {specials} special ones. Got {limit}. Raise it."
            )

    def read(self, first: list[str], second: list[str] | None = None) -> list[Tokens]:
        if second is not None and self._mark is not None:
            return self._joined(first, second, self._mark)
        if second is not None and self._keep_second:
            return self._second_kept(first, second)
        return self._cut(first, second, "longest_first")

    def _cut(self, first: list[str], second: list[str] | None, way: str) -> list[Tokens]:
        encoded = self._encode(first, second, truncation=way, max_length=self._limit)
        full = self._lengths(first, second, encoded)
        segments = encoded[SEGMENTS] if self._pairs else [[]] * len(full)
        return [
            Tokens(ids=ids, segments=kinds if any(kinds) else None, cut=len(ids) < whole)
            for ids, kinds, whole in zip(encoded["input_ids"], segments, full, strict=True)
        ]

    def _second_kept(self, first: list[str], second: list[str]) -> list[Tokens]:
        """Truncate the first text, to one token if necessary; if that is not enough, also the second."""
        bare = self._encode(second, None, add_special_tokens=False)["input_ids"]
        fits = np.array([len(ids) < self._room for ids in bare])
        found: dict[int, Tokens] = {}
        for way, rows in (("only_first", np.flatnonzero(fits)), ("longest_first", np.flatnonzero(~fits))):
            if len(rows):
                chosen = self._cut([first[row] for row in rows], [second[row] for row in rows], way)
                found |= dict(zip(rows.tolist(), chosen, strict=True))
        return [found[row] for row in range(len(first))]

    def _lengths(self, first: list[str], second: list[str] | None, encoded: Any) -> list[int]:
        """Number of tokens of each example before truncation; only examples at the limit are tokenized again."""
        lengths = [len(ids) for ids in encoded["input_ids"]]
        full = [row for row, length in enumerate(lengths) if length >= self._limit]
        if full:
            again = self._encode([first[row] for row in full], second and [second[row] for row in full])
            for row, ids in zip(full, again["input_ids"], strict=True):
                lengths[row] = len(ids)
        return lengths

    def _encode(self, first: list[str], second: list[str] | None, **cut: Any) -> Any:
        return self._tokenizer(
            first,
            second,
            # A corpus may contain "[SEP]" as text, which must not become the control token.
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=self._pairs,
            verbose=False,  # no warnings about texts beyond the maximum length
            **cut,
        )

    def _joined(self, first: list[str], second: list[str], mark: int) -> list[Tokens]:
        sides = [self._encode(texts, None)["input_ids"] for texts in (first, second)]
        found = []
        for left, right in zip(*sides, strict=True):
            kept = shares((len(left), len(right)), self._room, self._keep_second)
            cut = sum(kept) < len(left) + len(right)
            found.append(Tokens(ids=[*left[: kept[0]], mark, *right[: kept[1]]], segments=None, cut=cut))
        return found


def shares(lengths: tuple[int, int], room: int, keep_second: bool = False) -> tuple[int, int]:
    """Tokens that two texts keep in `room` tokens: the longer is truncated first, or the first as far as possible.

    >>> shares((9, 3), 8), shares((9, 9), 8), shares((2, 3), 8), shares((9, 7), 8, keep_second=True)
    ((5, 3), (4, 4), (2, 3), (1, 7))
    """
    first, second = lengths
    if first + second <= room:
        return first, second
    if keep_second and second < room:
        return room - second, second
    half = room // 2
    if first > half and second > room - half:
        return half, room - half
    return (room - second, second) if first > half else (first, room - first)


def _separator(tokenizer: PreTrainedTokenizerBase) -> int:
    mark = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    if not isinstance(mark, int):
        raise UserError(
            "Pairs of texts need a token between them. The tokenizer has neither a separator nor an "
            "end-of-text token.\n"
            "Set one: tokenizer.sep_token = ..., or load the tokenizer that belongs to the model."
        )
    return mark


# Runs a model with a task's head over batches of examples.


def task_inputs(module: PreTrainedModel, batch: Batch) -> dict[str, Any]:
    """Arguments of a forward pass: token ids, padding mask, and segments if the model has two kinds."""
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, **without_cache(module)}
    if batch.attention_mask is not None:
        inputs["attention_mask"] = batch.attention_mask
    # GPT-2 would read segments as words; RoBERTa has one kind.
    if SEGMENTS in batch.tensors and has_segments(module):
        inputs[SEGMENTS] = batch[SEGMENTS]
    return inputs


def has_segments(module: PreTrainedModel) -> bool:
    """Whether the model has a segment embedding for the second text of a pair."""
    return (getattr(module.config, "type_vocab_size", None) or 0) > 1


def task_logits(module: PreTrainedModel, batch: Batch) -> Tensor:
    """The head's output for each example, (batch, ...), in float32 even under autocast."""
    return module(**task_inputs(module, batch)).logits.float()


def answered(
    task: AbstractTask, module: PreTrainedModel, rows: ExampleRows, vocabulary: Vocabulary, batch_tokens: int
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Yield indices of rows with their batch on the model's device, grouped by length, at most `batch_tokens` padded
    tokens each.

    Meanwhile, the module is in evaluation mode without gradients; its mode is restored afterwards.
    """
    data = TrainingData(source=rows, vocabulary=vocabulary)
    device = next(module.parameters()).device
    lengths = np.asarray(rows.lengths)
    with evaluating(module):
        for piece in micro_batches(np.arange(len(lengths)), lengths, None, batch_tokens):
            yield piece, data.batch(task, piece, ("task",), 0).to(device)


# Whether a model's tokens see later tokens.

_CAUSAL: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def reads_left_only(module: PreTrainedModel) -> bool:
    """Whether the head's output at the first token is independent of later tokens, which is tested."""
    if module not in _CAUSAL:
        with evaluating(module), torch.autocast(next(module.parameters()).device.type, enabled=False):
            _CAUSAL[module] = _first_is_blind(module)
    return _CAUSAL[module]


def _first_is_blind(module: PreTrainedModel) -> bool:
    """Whether all outputs at the first token have a gradient of exactly 0 with respect to the other embeddings.

    With a causal mask they do. In an encoder with little attention to later tokens the gradient is small but not 0,
    whereas the outputs for two texts may differ by less than the rounding error.
    """
    ids = torch.tensor([[5, 6, 7, 8]], device=next(module.parameters()).device)
    embedded: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1].clone()  # the model may modify its input in place

    table = module.get_input_embeddings()
    tied = [one for one in module.modules() if isinstance(one, nn.Embedding) and one.weight is table.weight]
    hooks = [one.register_forward_hook(keep) for one in tied or [table]]
    try:
        with torch.enable_grad():
            said = module(input_ids=ids % int(module.config.get_text_config().vocab_size))[0][:, 0].float()
            gradients = torch.autograd.grad(said.square().sum(), embedded, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return all(one is None or not one[:, 1:].any() for one in gradients)
