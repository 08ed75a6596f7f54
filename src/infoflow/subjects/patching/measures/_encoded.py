"""Pairs as token ids: batches of pairs of equal length, with the position and the tokens of the answers."""

# B pair, T token, V vocabulary

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.foundation import UserError, block_of, current_display, hash64
from infoflow.models import Model, decoder_inputs, front_token, leading, model_inputs

from ._pairs import BLANK, PatchPair

POSITIONS = ("before", "changed", "after", "answer")
"""Groups of positions: before the first difference, differing, after it, and where the answer is predicted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedPair:
    pair: PatchPair
    clean: list[int]
    corrupted: list[int]
    place: int  # position of the state that predicts the answer, in the predicting stack
    answer: int
    wrong: int  # -1: none
    written: tuple[int, ...] = ()  # input of an encoder-decoder's decoder

    @property
    def id(self) -> int:
        return hash64("patch-pair", self.pair.clean, self.pair.corrupted, self.pair.answer, self.pair.wrong) >> 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairBatch:
    """Pairs of equal length whose answers are predicted at the same position."""

    clean: Int[Tensor, "pair token"]
    corrupted: Int[Tensor, "pair token"]
    written: Int[Tensor, "pair step"] | None
    place: int
    answer: Int[Tensor, " pair"]
    wrong: Int[Tensor, " pair"]
    blocks: Int[np.ndarray, " pair"]
    rows: Int[np.ndarray, " pair"]
    stacks: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.answer)

    @property
    def tokens(self) -> int:
        return self.clean.numel() + (0 if self.written is None else self.written.numel())

    def inputs(self, model: Model, ids: Int[Tensor, "row token"]) -> dict[str, Any]:
        """Arguments of the forward pass for one or more variants of this batch."""
        written = self.written
        times = len(ids) // self.size
        return model_inputs(model, ids, None, None if written is None else written.repeat(times, 1))

    def at(self, position: str, stack: str) -> Bool[Tensor, "pair token"]:
        """Mask of the tokens of a group of positions, or of the token at one position."""
        first = stack == self.stacks[0]
        like = self.clean if first or self.written is None else self.written
        here = torch.arange(like.shape[1]).expand(like.shape)
        if position.isdecimal():
            return here == int(position)
        predicts = here == self.place if stack == self.stacks[-1] else torch.zeros_like(like, dtype=torch.bool)
        changed = (self.clean != self.corrupted) if first else torch.zeros_like(like, dtype=torch.bool)
        seen = changed.cumsum(1) > 0
        groups = {"changed": changed & ~predicts, "answer": predicts, "before": ~seen & ~predicts}
        return groups.get(position, seen & ~changed & ~predicts)

    def metric(self, logits: Float[Tensor, "row vocabulary"]) -> Float[Tensor, " row"]:
        """Logit of the answer minus that of the wrong answer; without a wrong answer, log-probability of the answer."""
        times = len(logits) // self.size
        answer, wrong = (ids.to(logits.device).repeat(times) for ids in (self.answer, self.wrong))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        against = logits.gather(1, wrong.clamp(min=0)[:, None])[:, 0]
        return logits.gather(1, answer[:, None])[:, 0] - torch.where(wrong < 0, logits.logsumexp(1), against)


def encoded_pairs(model: Model, pairs: Sequence[PatchPair], limit: int | None) -> list[EncodedPair]:
    """The pairs that the model can read, at most `limit` of them by a hash of their text.

    Raises:
        UserError: The model can read none of the pairs.
    """
    if not pairs:
        raise UserError("Patching needs at least one pair. Got none.")
    read = {pair: _encoded(model, pair) for pair in pairs}
    unfit: dict[str, list[PatchPair]] = {}
    for pair, why in read.items():
        if isinstance(why, str):
            unfit.setdefault(why, []).append(pair)
    said = "; ".join(
        f"{len(unfit[why]):,} because {why} (such as {_named(unfit[why][0])})"
        for why in sorted(unfit, key=lambda why: -len(unfit[why]))
    )
    found = [one for one in read.values() if isinstance(one, EncodedPair)]
    if not found:
        raise UserError(
            f"{model.name} can read none of the {len(pairs):,} pairs: {said}.\nBoth inputs of a pair need the same "
            "number of tokens, and the answers different first tokens."
        )
    if said:
        left_out = len(read) - len(found)
        current_display().note(f"{left_out:,} of {len(read):,} pairs are left out: {said}.")
    return sorted(found, key=lambda one: one.id)[:limit]


def batches(model: Model, encoded: Sequence[EncodedPair], tokens: int) -> Iterator[PairBatch]:
    """Batches without padding, of at most `tokens` tokens."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for row, one in enumerate(encoded):
        groups.setdefault((len(one.clean), len(one.written), one.place), []).append(row)
    for (length, steps, place), rows in groups.items():
        size = max(1, tokens // (length + steps))
        for start in range(0, len(rows), size):
            part = [encoded[row] for row in rows[start : start + size]]
            ids = {
                name: torch.tensor([getattr(one, name) for one in part])
                for name in ("clean", "corrupted", "written", "answer", "wrong")
            }
            yield PairBatch(
                **ids | ({} if steps else {"written": None}),
                place=place,
                blocks=block_of(np.array([one.id for one in part])),
                rows=np.array(rows[start : start + size]),
                stacks=tuple(stack.name for stack in model.anatomy.stacks),
            )


def _named(pair: PatchPair) -> str:
    return f"line {pair.line}" if pair.line else f'"{pair.clean[:60]}"'


def _encoded(model: Model, pair: PatchPair) -> EncodedPair | str:
    """The pair as tokens, or why the model cannot read it."""
    read = {"masked-lm": _masked, "causal-lm": _next, "seq2seq": _written}[model.task]
    try:
        one = read(model, pair)
    except _Unfit as error:
        return str(error)
    if len(one.clean) != len(one.corrupted):
        return "the two inputs have different numbers of tokens"
    if one.clean == one.corrupted:
        return "the two inputs are the same"
    if one.answer == one.wrong:
        return "answer and wrong begin with the same token"
    if model.max_tokens is not None and len(one.clean) > model.max_tokens:
        return f"an input is longer than {model.max_tokens} tokens"
    return one


class _Unfit(Exception):
    """Why a model cannot read a pair."""


def _masked(model: Model, pair: PatchPair) -> EncodedPair:
    """The pair for a masked LM: the blank is a mask, and the answer is one token in its place."""
    tokenizer = model.require_tokenizer()
    mask = tokenizer.mask_token
    if mask is None:
        raise UserError(f"The tokenizer of {model.name} has no mask token, so the model fills no blank.")
    texts = [text.replace(BLANK, mask) for text in (pair.clean, pair.corrupted)]
    texts = [text if mask in text else f"{text.rstrip()} {mask}" for text in texts]
    clean, corrupted = (list(tokenizer(text)["input_ids"]) for text in texts)
    places = [index for index, token in enumerate(clean) if token == tokenizer.mask_token_id]
    if len(places) != 1 or corrupted[places[0] : places[0] + 1] != [tokenizer.mask_token_id]:
        raise _Unfit("its blank is not at one position")
    (place,) = places

    def token(answer: str) -> int:
        whole = list(tokenizer(texts[0].replace(mask, answer.strip()))["input_ids"])
        if len(whole) != len(clean):
            raise _Unfit("an answer is more than one token")
        return whole[place]

    wrong = token(pair.wrong) if pair.wrong.strip() else -1
    return EncodedPair(pair=pair, clean=clean, corrupted=corrupted, place=place, answer=token(pair.answer), wrong=wrong)


def _next(model: Model, pair: PatchPair) -> EncodedPair:
    """The pair for a causal LM: the answer is the next token after the text up to the blank."""
    tokenizer = model.require_tokenizer()
    first = front_token(tokenizer)
    start = leading(tokenizer) or ([] if first is None else [first])
    before = [text.split(BLANK)[0].rstrip() for text in (pair.clean, pair.corrupted)]
    clean, corrupted = (start + _bare(tokenizer, text) for text in before)
    answer, wrong = (_following(tokenizer, before[0], answer) for answer in (pair.answer, pair.wrong))
    return EncodedPair(pair=pair, clean=clean, corrupted=corrupted, place=len(clean) - 1, answer=answer, wrong=wrong)


def _written(model: Model, pair: PatchPair) -> EncodedPair:
    """The pair for an encoder–decoder: the encoder reads the text, and the answer is the decoder's next token."""
    if BLANK in pair.clean:
        raise _Unfit(f"an encoder-decoder has no blank ({BLANK}): the answer follows the target")
    tokenizer, writes = model.require_tokenizer(), model.output_tokenizer
    assert writes is not None
    clean, corrupted = (list(tokenizer(text)["input_ids"]) for text in (pair.clean, pair.corrupted))
    before = pair.target.rstrip()
    answer, wrong = (_following(writes, before, answer) for answer in (pair.answer, pair.wrong))
    start = leading(writes)
    target = torch.tensor([[*start, *(_bare(writes, before) if before else []), answer]])
    inputs, labels = decoder_inputs(model, target)
    place = labels.shape[1] - 1
    ids = {"clean": clean, "corrupted": corrupted, "written": tuple(inputs[0, : place + 1].tolist())}
    return EncodedPair(pair=pair, **ids, place=place, answer=answer, wrong=wrong)


def _bare(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _following(tokenizer: PreTrainedTokenizerBase, text: str, answer: str) -> int:
    """The first token of an answer after a text; -1 without an answer."""
    if not answer.strip():
        return -1
    given = _bare(tokenizer, text) if text else []
    between = "" if not text or answer[:1].isspace() else " "
    whole = _bare(tokenizer, f"{text}{between}{answer}")
    if whole[: len(given)] != given or len(whole) == len(given):
        raise _Unfit("the tokenizer joins an answer with the text before it")
    return whole[len(given)]
