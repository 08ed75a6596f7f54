"""How differently heads attend: Jensen–Shannon divergence between all pairs of heads, within and between layers."""

# N bootstrap block (64), G heads of one stack and kind, layer by layer

import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Need, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, block_interval, current_display, hash64_array, stream
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._attention_rows import Array, Attention, AttentionRows, check_attention
from ._head_measure import HEAD_KEYS, SummedMeasure
from ._head_sets import all_heads

ByBlock = Mapping[int, Float[np.ndarray, "head head"]]
_shared: "weakref.WeakKeyDictionary[Activations, dict[tuple[AttentionKey, bytes, float], ByBlock]]" = (
    weakref.WeakKeyDictionary()
)

_STACK_KIND = HEAD_KEYS[:2]
_PAIR = tuple(
    Column(f"{name}_{end}", "int64", "", f"{name} of the {which} head, from 0")
    for end, which in (("a", "first"), ("b", "second"))
    for name in ("layer", "head")
)

HEAD_DISTANCE = TableSchema(
    name="head_distance",
    description="Jensen–Shannon divergence between the attention of two heads of one stack and kind, averaged over "
    "queries (and, in `total`, summed); each pair appears once.",
    columns=(
        *_STACK_KIND,
        *_PAIR,
        Column("distance", "float64", "nats", "mean over queries, at most ln 2"),
        Column("total", "float64", "nats", "sum over queries, as in the authors' code"),
        Column("low", "float64", "nats", "lower end of the mean's 95% interval"),
        Column("high", "float64", "nats", "upper end of the mean's 95% interval"),
        Column("count", "int64", "occurrences", "queries"),
    ),
)
HEAD_LAYER_DISTANCE = TableSchema(
    name="head_layer_distance",
    description="Whether heads of one layer attend alike: the mean Jensen–Shannon divergence of pairs within a layer, "
    "of pairs from different layers, and their difference (between minus within).",
    columns=(
        *_STACK_KIND,
        Column("pairs", "string", "", "within, between or difference"),
        *estimate_columns(
            "nats",
            "mean over pairs and queries",
            "the value with the layers of the heads permuted (mean of 200 permutations)",
        ),
    ),
)


_COMPARISONS = 2e11  # limit on compared weights, summed over pairs of heads: about three minutes on one core


class _HeadPairs(SummedMeasure):
    """Sums of the divergences between all pairs of heads, on a bounded number of sentences.

    The cost is quadratic in the number of heads, so `sentences` are chosen by hash.
    """

    needs: frozenset[Need] = frozenset({"attention"})
    by_token = True

    def __init__(self, sentences: int = 300, smoothing: float = 1e-3, special: bool = True, seed: int = 0) -> None:
        super().__init__()
        if sentences < 1 or not 0 <= smoothing < 1:
            raise UserError(
                f"sentences must be at least 1 and smoothing lie in [0, 1). Got {sentences} and {smoothing}."
            )
        self.sentences, self.smoothing, self.special, self.seed = sentences, smoothing, special, seed
        self._limit = np.uint64(2**64 - 1)
        self._heads: dict[tuple[str, ...], list[tuple[int, int]]] = {}

    def prepare(self, reader: Reader) -> None:
        self._heads = {}
        for stack, kind, layer, head in all_heads(reader.model.anatomy):
            self._heads.setdefault((stack, kind), []).append((layer, head))
        pairs = sum(len(heads) ** 2 / 2 for heads in self._heads.values())
        hashes = self._hashes(reader.corpus.content_ids[reader.rows])
        first = np.argsort(hashes, kind="stable")[: self.sentences]
        lengths = reader.lengths(reader.rows[first]).astype(float)
        number = max(1, int((pairs * (lengths**2).cumsum() <= _COMPARISONS).sum()))
        if number < len(first):
            current_display().note(
                f"{self.name} of {reader.model.name} reads {number} of {len(first)} texts. Comparing all pairs "
                "of heads on all of them would take hours."
            )
        self._limit = hashes[first[number - 1]]

    def _hashes(self, sentence_ids: np.ndarray) -> np.ndarray:
        return hash64_array(("head-distance", self.seed), sentence_ids)

    def reads(self, sentence_ids: np.ndarray) -> np.ndarray:
        """Mask of the sentences that are read."""
        return self._hashes(sentence_ids) <= self._limit

    def update(self, activations: Activations) -> None:
        chosen = np.flatnonzero(self.reads(activations.sentence_ids))
        blocks = activations.blocks.cpu().numpy()[chosen]
        for key in activations.attention:
            queries, keys = activations.streams[key[0]], activations.keys_stream(key)
            from_tokens, to_tokens = (queries.real, keys.real) if self.special else (queries.valid, keys.valid)
            rows = AttentionRows.of_activations(activations, key, from_tokens & queries.counted, to_tokens)
            if len(chosen) == 0:
                continue
            self._add_pairs(_name(key, "pairs"), _divergences(activations, key, chosen, rows, self.smoothing))
            count = np.bincount(blocks, rows.queries[chosen].sum(1).cpu().numpy(), minlength=NUM_BLOCKS)
            self._add(_name(key, "count"), count)

    def _add_pairs(self, name: str, by_block: ByBlock) -> None:
        """Add only the blocks that have sentences in the batch: with 1,152 heads, all blocks would take 680 MB."""
        for block, pairs in by_block.items():
            if name not in self._sums:
                self._sums[name] = np.zeros((NUM_BLOCKS, *pairs.shape))
            self._sums[name][block] += pairs

    def result(self) -> pd.DataFrame:
        keys = [tuple(name.split(".")[:2]) for name in self._sums if name.endswith(".pairs")]
        rows = (self._rows(key) for key in keys)
        frames = [
            pd.DataFrame(of_key).assign(stack=key[0], kind=key[1]) for key, of_key in zip(keys, rows, strict=True)
        ]
        frames = [frame for frame in frames if len(frame)]
        empty = pd.DataFrame(columns=self.table.column_names)
        return pd.concat(frames, ignore_index=True)[self.table.column_names] if frames else empty

    def of(self, attention: Attention, valid: Array, reduction: str = "sum") -> Float[Tensor, "head head"]:
        """Divergences computed from arrays, over all sentences and valid tokens; see `js_distance`."""
        weights, mask = check_attention(attention, valid)
        if reduction not in ("sum", "mean"):
            raise UserError(f'reduction must be "sum" or "mean". Got {reduction}.')
        rows = AttentionRows.of_tokens(mask)
        num = weights.shape[0] * weights.shape[2]
        total = torch.zeros(num, num, dtype=torch.float64)
        for number in range(len(mask)):
            total += _sentence(weights[:, number].flatten(0, 1).double(), rows.admissible[number], self.smoothing)
        return (total / rows.queries.sum() if reduction == "mean" else total).to(weights.dtype)

    def _parts(self, key: Sequence[str]) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
        """Sums (64, G, G), queries (64,), and the G heads, each as (layer, head)."""
        return self._sums[_name(key, "pairs")], self._sums[_name(key, "count")], self._heads[tuple(key)]

    @abstractmethod
    def _rows(self, key: Sequence[str]) -> list[dict[str, Any]] | dict[str, Any]:
        """The table's rows or columns for one stack and kind, without the columns `stack` and `kind`."""


class HeadDistance(_HeadPairs):
    """Jensen–Shannon divergence (`js_distance`) between all pairs of heads of a stack and kind, by default smoothed.

    Args:
        sentences: Maximum number of sentences, chosen by hash; the cost is quadratic in the number of heads.
        smoothing: ε in (1 − ε) a + ε/|K|, which replaces each weight a.
        special: Whether special tokens count.
        seed: Seeds the choice of sentences.

    Source: [@clark2019]. Their code sums over queries, their paper averages; both are reported.
    """

    table: ClassVar[TableSchema] = HEAD_DISTANCE

    def _rows(self, key: Sequence[str]) -> dict[str, Any]:
        sums, count, heads = self._parts(key)
        first, second = np.triu_indices(sums.shape[1], k=1)
        places = np.array(heads).reshape(-1, 2)
        units = int(np.count_nonzero(count))
        numbers = np.array([_estimated(sums[:, a, b], count, units) for a, b in zip(first, second, strict=True)])
        distance, total, low, high = numbers.reshape(-1, 4).T
        return {
            "layer_a": places[first, 0],
            "head_a": places[first, 1],
            "layer_b": places[second, 0],
            "head_b": places[second, 1],
            "distance": distance,
            "total": total,
            "low": low,
            "high": high,
            "count": np.full(len(first), int(count.sum())),
        }


def _estimated(
    sums: Float[np.ndarray, " block"], count: Float[np.ndarray, " block"], units: int
) -> tuple[float, float, float, float]:
    """Mean, sum, and the mean's interval, as in `ratio_estimate`; replicates are omitted for too many pairs."""
    total = float(count.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(np.float64(sums.sum()) / total)
        effects = (sums - value * count) / total
    ends = block_interval(value, effects, units=units, scale="positive", count=total)
    return value, float(sums.sum()), ends.low, ends.high


class HeadLayerDistance(_HeadPairs):
    """Whether heads of one layer are closer to each other than to heads of other layers.

    Args:
        sentences: Maximum number of sentences, chosen by hash.
        smoothing: ε in (1 − ε) a + ε/|K|, which replaces each weight a.
        special: Whether special tokens count.
        seed: Seeds the choice of sentences and the permutations.

    Source: [@clark2019], who map the heads in the plane; the comparison with permuted layers is ours.
    """

    table: ClassVar[TableSchema] = HEAD_LAYER_DISTANCE
    _PERMUTATIONS = 200

    def _rows(self, key: Sequence[str]) -> list[dict[str, Any]]:
        sums, count, heads = self._parts(key)
        layers = np.array([layer for layer, _ in heads])
        if len(set(layers)) == 1 or len(set(layers)) == len(layers):
            return []  # no pair from two layers, or none within one
        measured = _contrasts(sums, layers)
        generator = stream("permuted-layers", self.seed)
        total = sums.sum(0, keepdims=True)
        permuted = np.mean([_contrasts(total, generator.permutation(layers)) for _ in range(self._PERMUTATIONS)], 0)
        baselines = permuted[:, 0] / count.sum()
        return [
            {"pairs": pairs, **ratio_estimate(measured[number], count, float(baselines[number]))}
            for number, pairs in enumerate(("within", "between", "difference"))
        ]


def _contrasts(sums: Float[np.ndarray, "block head head"], layers: np.ndarray) -> Float[np.ndarray, "contrast block"]:
    """The means over pairs within a layer and between layers, and their difference."""
    a, b = np.triu_indices(sums.shape[1], k=1)
    same = layers[a] == layers[b]
    pairs = sums[:, a, b]
    within, between = pairs[:, same].mean(1), pairs[:, ~same].mean(1)
    return np.stack([within, between, between - within])


def _name(key: Sequence[str], part: str) -> str:
    return ".".join((*key, part))


def js_distance(
    attention: Attention, valid: Array, reduction: str = "sum", smoothing: float = 0.0
) -> Float[Tensor, "head head"]:
    r"""Jensen–Shannon divergence between all pairs of heads, summed over queries, in nats.

    $$ D(g, h) = \sum_{i \in Q} H\Big(\frac{a^g_i + a^h_i}{2}\Big) - \frac{H(a^g_i) + H(a^h_i)}{2} $$

    H is the entropy over the valid keys, whose weights are not renormalised after exclusion. Heads are in the order
    layer · num_heads + head.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        reduction: `"sum"` over queries, as in the code of [@clark2019], or `"mean"`, as in their paper.
        smoothing: ε of $(1 - ε) a + ε/|K|$ before comparing; [@clark2019] use 0.001.

    Returns:
        Symmetric, with zero diagonal; each query adds at most ln 2.

    Raises:
        UserError: A shape is wrong, the reduction is unknown, or ε is outside [0, 1).

    Source: [@clark2019].
    """
    return HeadDistance(smoothing=smoothing).of(attention, valid, reduction)


def _divergences(
    activations: Activations, key: AttentionKey, chosen: np.ndarray, rows: AttentionRows, smoothing: float
) -> ByBlock:
    """`js_distance` of all heads of all layers, by bootstrap block of the chosen rows of the batch.

    Computed once per batch for all measures that use it.
    """
    held = _shared.setdefault(activations, {})
    request = (key, chosen.tobytes(), smoothing)
    if request not in held:
        held[request] = _by_block(activations, key, chosen, rows.admissible[chosen], smoothing)
    return held[request]


def _by_block(
    activations: Activations, key: AttentionKey, chosen: np.ndarray, admissible: Tensor, smoothing: float
) -> ByBlock:
    """Sums per block, accumulated sentence by sentence: with 1,152 heads, one sentence's matrix takes 11 MB."""
    layers = [weights[chosen] for weights in activations.attention[key]]
    sums: dict[int, np.ndarray] = {}
    for number, block in enumerate(activations.blocks.cpu().numpy()[chosen].tolist()):
        heads = _with_sink(torch.cat([layer[number] for layer in layers]).float(), admissible[number])
        found = _sentence(*heads, smoothing).cpu().numpy()
        sums[block] = sums[block] + found if block in sums else found
    return sums


def _with_sink(
    heads: Float[Tensor, "head query key"], admissible: Bool[Tensor, "query key"]
) -> tuple[Float[Tensor, "head query last"], Bool[Tensor, "query last"]]:
    """The heads' weights with a learned sink (gpt-oss) as one more key; unchanged if all weights are on tokens."""
    on_sink = 1 - heads.sum(2, keepdim=True)
    queries = admissible.any(1, keepdim=True)
    if not bool((on_sink * queries > 1e-4).any()):
        return heads, admissible
    return torch.cat([heads, on_sink.clamp(min=0)], dim=2), torch.cat([admissible, queries], dim=1)


def _sentence(
    heads: Float[Tensor, "head query key"], admissible: Tensor, smoothing: float
) -> Float[Tensor, "head head"]:
    """Divergences of all pairs in one sentence, with logarithms in the precision of `heads` and sums in float64."""
    share = admissible.to(heads) / admissible.sum(1, keepdim=True).clamp(min=1)
    entries = ((1 - smoothing) * heads + smoothing * share)[:, admissible]
    entropy = torch.special.entr(entries).sum(1, dtype=torch.float64)
    result = torch.zeros(len(entries), len(entries), dtype=torch.float64, device=entries.device)
    for g in range(len(entries) - 1):
        mixed = torch.special.entr((entries[g + 1 :] + entries[g]) / 2).sum(1, dtype=torch.float64)
        result[g, g + 1 :] = mixed - (entropy[g + 1 :] + entropy[g]) / 2
    # Rounding leaves a few −1e-7 between equal heads.
    return (result + result.T).clamp(min=0)
