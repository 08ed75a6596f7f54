"""Heads that copy a sentence from far back in a long text: retrieval heads."""

# B text, H head, Q query, K key, A token of the answer

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import Intervention, NothingToRead, PaddedBatch, PassOptions, Reader, forward, query_block
from infoflow.foundation import NUM_BLOCKS, UserError, stream
from infoflow.models import AttentionCall, Model, Readout, module_outputs, readout, states_of, tap
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._head_measure import HEAD_KEYS, compact, head_keys
from ._repeats import stream_of, template

_LEAST = 4  # minimum number of tokens in each half of a needle: those that cue it, and those to recall
_MOST = 32  # tokens of a needle
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_LINE = "\n"

LENGTH = Column("length", "int64", "tokens", "median length of the texts")
RECALLED = Column("recalled", "float64", "share", "tokens of the needle's second half that the model predicts")
RECALLED_WITHOUT = Column("recalled_without", "float64", "share", "the share predicted if the needle is not there")
HEAD_RETRIEVAL = TableSchema(
    name="head_retrieval",
    description="How often a head's largest weight lies on the token to be copied, if a sentence (the needle) from "
    "somewhere in a long text begins again at the end of the text.",
    columns=(
        *HEAD_KEYS,
        LENGTH,
        RECALLED,
        RECALLED_WITHOUT,
        *estimate_columns("share", "share of tokens", "the value if another sentence takes the needle's place"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Text:
    """A long text that ends with a sentence which may have occurred before."""

    ids: Int[np.ndarray, " token"]
    queries: Int[np.ndarray, " answer"]  # position before each token of the answer
    targets: Int[np.ndarray, " answer"]  # position at which the needle has, or would have, this token


class RetrievalHeads(Intervention):
    r"""Retrieval score of every head, measured with a needle in the user's own text.

    $$ s(h) = \frac{1}{|A|} \sum_{t \in A} \big[ \arg\max_j a^h_{t-1,\,j} = n(t) \big] $$

    A text consists of the corpus's sentences. One of them, the needle, appears at some depth and again at the end; A
    are the tokens of the second half of this last sentence, and n(t) is the position of token t in the first copy. So a
    hit means that the head attends to exactly the token to be predicted. The model reads the correct tokens (no text is
    generated).

    Args:
        needles: Number of texts. Their needles are at evenly spaced depths.
        length: Tokens of a text; 0: as many as the model and `max_length` allow and the corpus has.
        seed: Chooses the needles.

    Source: [@wu2024retrieval], who ask a question in words and score the tokens that the model generates itself.
    """

    table: ClassVar[TableSchema] = HEAD_RETRIEVAL

    def __init__(self, needles: int = 12, length: int = 0, seed: int = 0) -> None:
        if not 2 <= needles <= NUM_BLOCKS or length < 0:
            raise UserError(
                f"needles must lie in 2..{NUM_BLOCKS}, and length must not be negative. Got {needles} and {length}."
            )
        self.needles, self.length, self.seed = needles, length, seed

    def refusal(self, model: Model) -> str | None:
        if model.task != "causal-lm":
            return "only causal language models continue a text"
        return None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        read = readout(reader.model)
        seen = [
            tuple(_look(reader.model, text, read, options) for text in pair) for pair in self._texts(reader, options)
        ]
        return pd.DataFrame(_rows(read.stack.name, seen), columns=self.table.column_names)

    def _texts(self, reader: Reader, options: PassOptions) -> Iterator[tuple[_Text, ...]]:
        """Each needle's text, and the same text with another sentence in the needle's place."""
        sentences = _sentences(reader)
        order = stream("needles", self.seed).permutation(len(sentences))
        distinct = {ids.tobytes(): ids for ids in (sentences[i] for i in order) if 2 * _LEAST <= len(ids) <= _MOST}
        needles = list(distinct.values())[: self.needles]
        chosen = {ids.tobytes() for ids in needles}
        hay = np.concatenate([np.empty(0, np.int64), *(ids for ids in sentences if ids.tobytes() not in chosen)])
        before, _ = template(reader, reader.source_stack)
        limits = [options.max_length, self.length or options.max_length, reader.model.max_tokens or options.max_length]
        length = min(*limits, len(hay) + len(before))
        if len(needles) < 2 or length < 4 * _MOST:
            raise NothingToRead(
                f"Retrieval heads need two sentences of {2 * _LEAST} to {_MOST} tokens and {4 * _MOST} tokens of other "
                f"text. Got {len(needles)} and {length}. Give more text, or a larger max_length."
            )
        for number, needle in enumerate(needles):
            start = (number * len(hay)) // len(needles)
            rest = np.roll(hay, -start)[: length - len(before) - 2 * len(needle)]
            depth = int((number + 0.5) / len(needles) * len(rest))
            instead = np.roll(hay, -start)[len(rest) : len(rest) + len(needle)]
            yield tuple(_text(before, rest[:depth], first, rest[depth:], needle) for first in (needle, instead))


def _text(before: list[int], early: np.ndarray, first: np.ndarray, late: np.ndarray, needle: np.ndarray) -> _Text:
    ids = np.concatenate([np.array(before, np.int64), early, first, late, needle])
    answer = np.arange(len(needle) // 2, len(needle))
    return _Text(ids=ids, queries=len(ids) - len(needle) + answer - 1, targets=len(before) + len(early) + answer)


def _sentences(reader: Reader) -> list[Int[np.ndarray, " token"]]:
    """The sentences of the corpus's texts, in order, as tokens without special ones."""
    parts = [
        f"{' ' if number else _LINE}{sentence}"
        for text in reader.corpus.select(reader.rows).column("text")
        for number, sentence in enumerate(_SENTENCE_END.split(text))
    ]
    ids = reader.tokenizer(reader.source_stack)(parts, add_special_tokens=False)["input_ids"]
    return [np.array(one, np.int64) for one in ids if len(one)]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Seen:
    """For one text: how many answer tokens each head attends to, by layer, and how many the model predicts."""

    hits: dict[int, Float[Tensor, " head"]]
    recalled: int
    count: int
    length: int


def _look(model: Model, text: _Text, read: Readout, options: PassOptions) -> _Seen:
    hits: dict[int, Tensor] = {}
    states: list[Tensor] = []
    queries, targets = torch.from_numpy(text.queries), torch.from_numpy(text.targets)

    def keep(call: AttentionCall) -> None:
        inside = (queries >= call.start) & (queries < call.start + call.weights.shape[2])
        weights = call.weights[0, :, queries[inside] - call.start].float()
        best = weights == weights.amax(2, keepdim=True)
        on_target = best[:, torch.arange(weights.shape[1]), targets[inside]] / best.sum(2)
        hits[call.layer] = hits.get(call.layer, 0) + on_target.double().sum(1).cpu()

    def keep_states(layer: int, output: Any) -> None:
        states.append(states_of(output)[0, queries])

    ids, number = torch.from_numpy(text.ids)[None], np.zeros(1, np.int64)
    streams = {read.stack.name: stream_of(ids, torch.ones(ids.shape[1], dtype=torch.bool))}
    batch = PaddedBatch(rows=number, lines=number, sentence_ids=number, streams=streams).to(model.device)
    size = query_block(model, len(text.ids), options)
    with (
        torch.inference_mode(),
        tap(model, on_attention=keep, query_block=size),
        module_outputs(model, [read.stack.layers[-1].block], keep_states),
    ):
        forward(model, batch)
    with torch.inference_mode():
        predicted = read(states[0]).argmax(1).cpu()
    recalled = int((predicted == torch.from_numpy(text.ids[text.queries + 1])).sum())
    return _Seen(hits=hits, recalled=recalled, count=len(text.queries), length=len(text.ids))


def _rows(stack: str, seen: Sequence[tuple[_Seen, ...]]) -> Iterator[dict[str, Any]]:
    """One row per head; each needle is one bootstrap block."""
    count = _blocks([text.count for text, _ in seen])
    recalled, recalled_without = (sum(pair[side].recalled for pair in seen) / count.sum() for side in (0, 1))
    length = int(np.median([text.length for text, _ in seen]))
    for layer in sorted(seen[0][0].hits):
        hits, control = (torch.stack([pair[side].hits[layer] for pair in seen]).numpy() for side in (0, 1))
        for head in range(hits.shape[1]):
            share = ratio_estimate(_blocks(hits[:, head]), count, float(control[:, head].sum() / count.sum()), "share")
            yield {
                **head_keys(stack, "self", layer, head),
                LENGTH: length,
                RECALLED: recalled,
                RECALLED_WITHOUT: recalled_without,
                **compact(share),
            }


def _blocks(values: Sequence[float] | np.ndarray) -> Float[np.ndarray, " block"]:
    return np.pad(np.asarray(values, np.float64), (0, NUM_BLOCKS - len(values)))
