"""Heads named by what they do in one sentence, and a few sentences in which heads are most confident."""

# B sentence of a batch, N sentence of the pool, H head, Q query, K key

import base64
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import Intervention, PaddedBatch, PassOptions, Reader, forward
from infoflow.foundation import current_display, hash64_array
from infoflow.models import AttentionCall, Model, keys_stack, tap
from infoflow.results import Column, TableSchema

from ._head_measure import HEAD_KEYS, head_keys
from ._sentence_attention import AttentionOfKind, LayerAttention, SentenceAttention, restore, sentence_attention
from ._sentence_tokens import ReadToken

_CLEAR = 0.8  # minimum share of the tokens whose strongest weight is on that target
_FEWEST = 4  # tokens: shorter sentences are uninformative
_NAMED = 8  # maximum number of heads
_ALIKE = 3  # maximum number with one target: many heads attend to the first token
_OFFSETS = {-1: "the token before", 1: "the token after", 0: "the token itself", -2: "two tokens back"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TellingHead:
    """A head that attends to one target from nearly all tokens of a sentence."""

    layer: int
    head: int
    place: str  # its target: "the token before", or a single token
    tokens: int  # number of tokens whose strongest weight is there
    of: int
    confidence: float  # mean of the strongest weights, 0 to 1

    @property
    def description(self) -> str:
        return f"looks at {self.place} ({self.tokens} of {self.of} tokens)"


def telling_heads(seen: SentenceAttention, kind: AttentionOfKind) -> tuple[TellingHead, ...]:
    """Heads of one kind that attend to one target from four of five tokens; most confident first, at most 3 per target.

    A target is an offset (previous or next token, the token itself, two back) or a single token. If both fit, the
    offset is reported, which is more informative. A causal model's first token sees only itself and does not count. The
    name describes a head in this sentence only; `infoflow heads` measures roles over a corpus.
    """
    texts = [token.text for token in seen.sentence.tokens[kind.keys_stack]]
    found = []
    for layer in kind.layers:
        for head, weights in enumerate(restore(layer.weights)):
            one = _telling(weights[1:] if kind.causal else weights, int(kind.causal), kind.kind == "self", texts)
            if one is not None:
                found.append(TellingHead(layer=layer.layer, head=head, **one))
    named, places = [], Counter[str]()
    for one in sorted(found, key=lambda one: (-one.confidence, one.layer, one.head)):
        places[one.place] += 1
        if places[one.place] <= _ALIKE:
            named.append(one)
    return tuple(named[:_NAMED])


def _telling(weights: np.ndarray, first: int, same_tokens: bool, texts: list[str]) -> dict[str, Any] | None:
    """The fields of a `TellingHead`; None if no target is clear."""
    if len(weights) < _FEWEST:
        return None
    best = weights == weights.max(axis=1, keepdims=True)
    shares = best / best.sum(axis=1, keepdims=True)  # ties share the count
    confidence = float(weights.max(axis=1).mean())
    if same_tokens:
        for offset, name in _OFFSETS.items():
            # A token without such a neighbour cannot attend to it.
            able = len(weights) - sum(not 0 <= i + offset < len(texts) for i in range(first, first + len(weights)))
            count = shares.trace(first + offset)
            if able >= _FEWEST and count >= _CLEAR * able:
                return {"place": name, "tokens": round(count), "of": able, "confidence": confidence}
    counts = shares.sum(axis=0)
    if counts.max() >= _CLEAR * len(weights):
        place = f"“{texts[int(counts.argmax())]}”"
        return {"place": place, "tokens": round(counts.max()), "of": len(weights), "confidence": confidence}
    return None


HEAD_EXAMPLES = TableSchema(
    name="head_examples",
    version=2,
    description="Every head's attention on a few short sentences, the same for all heads of a model. Bytes q stand for "
    "(q / 255)², row by row; they are for pictures, not for statistics.",
    columns=(
        *HEAD_KEYS,
        Column("rank", "int64", "", "0: the head is most confident in this sentence"),
        Column(
            "confidence",
            "float64",
            "probability",
            "mean of the head's largest weight over the tokens of this sentence, without special ones",
        ),
        Column("sentence", "int64", "", "stable id of the sentence in the corpus"),
        Column("text", "string", "", "what the attending stack reads"),
        Column("queries", "string", "", "tokens that attend, as JSON: [text, special]"),
        Column("keys", "string", "", "tokens that are attended to, in the same form"),
        Column("weights", "string", "", "attention (query, key), bytes in base64"),
        Column(
            "value_norms",
            "list<float64>",
            "",
            "length of the vector that the head would write if it attended to one key alone, for each key",
        ),
    ),
)


class TellingSentences(Intervention):
    r"""A few short sentences that together show most heads at their most confident.

    From a pool chosen by hash, sentences are selected greedily to maximise the sum of each head's best confidence,
    $\sum_h \max_{n \in S} \mathrm{conf}_h(n)$. So a head that attends to prepositions gets a sentence with one. For
    each head the sentences are ranked by its confidence in them.

    Args:
        sentences: Number of sentences to pick.
        pool: Number of sentences to pick from.
        shortest: Minimum number of tokens, special ones included.
        longest: Maximum number of tokens, on the longer side.
    """

    table: ClassVar[TableSchema] = HEAD_EXAMPLES
    whole_attention: ClassVar[bool] = True

    def __init__(self, sentences: int = 6, pool: int = 96, shortest: int = 7, longest: int = 13) -> None:
        self.sentences, self.pool, self.shortest, self.longest = sentences, pool, shortest, longest

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        rows = self._pool(reader)
        if len(rows) == 0:
            return pd.DataFrame(columns=self.table.column_names)
        confidences_NH = _pool_confidences(reader, rows, options.tokens_per_batch)
        rows = rows[cover(confidences_NH, self.sentences)]
        found = []
        with current_display().progress("Telling sentences", len(rows), unit="sentences") as bar:
            for row in rows.tolist():
                sentence = reader.corpus[row]
                target = getattr(sentence, reader.decoder_side) if reader.has_target else None
                found.append((sentence.id, sentence_attention(reader.model, sentence.text, target, longest=None)))
                bar.advance()
        return pd.DataFrame(_rows(found), columns=self.table.column_names)

    def _pool(self, reader: Reader) -> np.ndarray:
        """Short sentences with the lowest hashes; if too few sentences are short, the shortest ones."""
        rows = reader.rows
        lengths = np.array([reader.longest(np.array([row])) for row in rows])
        fits = (lengths >= self.shortest) & (lengths <= self.longest)
        if fits.sum() < self.sentences:
            fits = lengths <= max(np.sort(lengths)[min(self.sentences, len(lengths)) - 1], self.longest)
        rows = rows[fits]
        ids = reader.corpus.content_ids[rows]
        order = np.argsort(hash64_array(("telling-sentences", reader.seed), ids), kind="stable")
        pool = rows[np.sort(order[: self.pool])]
        return pool[np.array([bool(reader.corpus[row].text.strip()) for row in pool.tolist()], dtype=bool)]


def cover(scores: Float[np.ndarray, "sentence head"], number: int) -> Int[np.ndarray, " chosen"]:
    """Rows selected greedily to maximise the sum over columns of the best score; the lowest row wins ties.

    >>> cover(np.array([[0.9, 0.1], [0.8, 0.3], [0.1, 0.8]]), 2).tolist()
    [1, 2]
    """
    chosen: list[int] = []
    best_H = np.zeros(scores.shape[1])
    for _ in range(min(number, len(scores))):
        gains = np.maximum(scores, best_H).sum(1)
        gains[chosen] = -np.inf
        chosen.append(int(gains.argmax()))
        best_H = np.maximum(best_H, scores[chosen[-1]])
    return np.array(chosen)


def _pool_confidences(reader: Reader, rows: np.ndarray, token_budget: int) -> Float[np.ndarray, "sentence head"]:
    """Confidence of every head of the model in each sentence."""
    step = max(1, token_budget // max(reader.longest(rows), 1))
    parts = []
    batches = reader.even(rows, np.split(np.arange(len(rows)), range(step, len(rows), step)))
    for index in batches:
        batch = reader.padded(rows[index]).to(reader.model.device)
        parts.append(_confidences(reader.model, batch))
    order = np.argsort(np.concatenate(batches))
    return torch.cat(parts).double().numpy()[order]


def _confidences(model: Model, batch: PaddedBatch) -> Float[Tensor, "sentence head"]:
    found: list[Tensor] = []
    with torch.inference_mode(), tap(model, on_attention=lambda call: found.append(_confidence(call, batch))):
        forward(model, batch)
    return torch.cat(found, dim=1)


def _confidence(call: AttentionCall, batch: PaddedBatch) -> Float[Tensor, "sentence head"]:
    queries_BQ = batch.streams[call.stack].valid.to(call.weights.device)
    keys_BK = batch.streams[keys_stack(call.stack, call.kind)].valid.to(call.weights.device)
    largest_BHQ = call.weights.masked_fill(~keys_BK[:, None, None], 0).amax(3)
    sums_BH = largest_BHQ.masked_fill(~queries_BQ[:, None], 0).sum(2)
    return (sums_BH / queries_BQ.sum(1, keepdim=True).clamp(min=1)).float().cpu()


def _rows(found: list[tuple[int, SentenceAttention]]) -> list[dict[str, Any]]:
    rows = []
    for sentence, seen in found:
        source = next(iter(seen.sentence.tokens))
        for kind in seen.kinds:
            queries, keys = seen.sentence.tokens[kind.stack], seen.sentence.tokens[kind.keys_stack]
            text = seen.sentence.text if kind.stack == source else seen.sentence.translation
            shared = {"sentence": sentence, "text": text, "queries": _as_json(queries), "keys": _as_json(keys)}
            for layer in kind.layers:
                rows += [{**shared, **one} for one in _head_rows(kind, layer, queries, keys)]
    if not rows:  # a pruned model without a head
        return []
    frame = pd.DataFrame(rows)
    heads = frame.groupby([*HEAD_KEYS])
    frame["rank"] = heads["confidence"].rank(method="first", ascending=False).astype(np.int64) - 1
    return frame.sort_values([*HEAD_KEYS, "rank"]).to_dict("records")


def _head_rows(
    kind: AttentionOfKind, layer: LayerAttention, queries: tuple[ReadToken, ...], keys: tuple[ReadToken, ...]
) -> list[dict[str, Any]]:
    real_Q, real_K = (np.array([not token.special for token in tokens]) for tokens in (queries, keys))
    rows = []
    for head, weights_QK in enumerate(layer.weights):
        inner_QK = restore(weights_QK)[real_Q][:, real_K]
        rows.append(
            {
                **head_keys(kind.stack, kind.kind, layer.layer, head),
                "confidence": float(inner_QK.max(1).mean()) if inner_QK.size else 0.0,
                "weights": _encoded(weights_QK),
                "value_norms": layer.value_norms[head].astype(np.float64).tolist(),
            }
        )
    return rows


def _as_json(tokens: tuple[ReadToken, ...]) -> str:
    return json.dumps([[token.text, int(token.special)] for token in tokens], ensure_ascii=False)


def _encoded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
