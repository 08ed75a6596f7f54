"""Shared parts of head statistics: roles of tokens; sums per bootstrap block, layer and head; and a control."""

# N bootstrap block (64), L layer, H head, X any further axis of the score (for example offsets)

import operator
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.flow import Activations, AttentionKey, Measure, Need, Reader, Stream
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, is_punctuation
from infoflow.models import Model, keys_stack
from infoflow.results import Column, ratio_estimate

from ._attention_rows import Array, Attention, AttentionRows, Pairs, Weights, check_attention

SPECIAL = "special"  # every special token
PUNCTUATION = "punctuation"
NAMED = ("cls", "sep", "bos", "eos")
"""Special tokens by the tokenizer's names; a token with two names (as in XLM-R) has both roles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Roles:
    """Token ids by stack and role, such as "sep" or "punctuation"."""

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
        """Mask of the stack's tokens that have the role."""
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


STACK = Column("stack", "string", "", "encoder or decoder")
KIND = Column("kind", "string", "", "self or cross")
LAYER = Column("layer", "int64", "", "block, from 0")
HEAD = Column("head", "int64", "", "head, from 0")
HEAD_KEYS = (STACK, KIND, LAYER, HEAD)
UNIFORM = Column(
    "uniform",
    "float64",
    "share",
    "a second control: the value for a head with equal weights on all keys that the model lets a query see",
)
AVERAGES = ("micro", "document")


def head_keys(stack: str, kind: str, layer: int, head: int) -> dict[str, Any]:
    """The columns that identify a head."""
    return {STACK: stack, KIND: kind, LAYER: layer, HEAD: head}


class SummedMeasure(Measure):
    """A measure whose state is a dictionary of arrays that add up over batches, shards and processes."""

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}

    def _add(self, name: str, array: np.ndarray) -> None:
        self._sums[name] = self._sums[name] + array if name in self._sums else array

    def _add_layers(self, name: str, layers: Sequence[np.ndarray]) -> None:
        """One array per layer: a pruned model's layers may differ in their number of heads."""
        for number, array in enumerate(layers):
            self._add(f"{name}.{number}", array)

    def _layers(self, name: str) -> list[np.ndarray]:
        """The sums of `_add_layers`; empty if there are none."""
        found: list[np.ndarray] = []
        while f"{name}.{len(found)}" in self._sums:
            found.append(self._sums[f"{name}.{len(found)}"])
        return found

    def merge(self, other: "SummedMeasure") -> None:
        for name, array in other._sums.items():
            self._add(name, array)

    def state_dict(self) -> dict[str, np.ndarray]:
        return dict(self._sums)

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._sums = dict(state)


def each_head(layers: Sequence[np.ndarray]) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the layer, the head, and the head's sums (block, ...) from the layers' arrays (block, head, ...)."""
    for layer, sums in enumerate(layers):
        for head in range(sums.shape[1]):
            yield layer, head, sums[:, head]


@dataclass(slots=True, eq=False)
class _Control:
    """Counts and the control's sums, computed in the first of the layers that have the same mask."""

    mask: tuple[Any, ...]
    layer: int
    count: Float[Tensor, "sentence *x"]
    uniform: Float[Tensor, "sentence head=1 *x"]


@dataclass(slots=True, eq=False)
class _Layer:
    """One layer's sums over the queries of each sentence."""

    score: Float[Tensor, "sentence head *x"]
    control: _Control


class AbstractHeadMeasure(SummedMeasure):
    """A statistic of each head, averaged over attention rows: of a corpus (as a measure), or of arrays (by `of`).

    Subclasses define the sum over a sentence's queries (`sums`), the number of queries (`count`), and the score of a
    head with equal weights on all keys (`chance`). For each stack and kind the state has the sums `score` (64, L, H,
    X…), `count` (64, L, X…) and `uniform` (64, L, 1, X…) in float64, for 64 blocks, L layers and H heads. X… are
    further axes of the score, such as offsets. Layers may have different masks.

    Args:
        exclude_keys: Roles of tokens excluded as keys: "special" (all special tokens), "cls", "sep", "bos", "eos",
            "punctuation", or a token of the vocabulary. Padding is always excluded. Attention on excluded keys is not
            redistributed.
        exclude_queries: Roles of tokens excluded as queries.
        average: `"micro"` pools all queries; `"document"` averages each sentence's mean.
    """

    needs: frozenset[Need] = frozenset({"attention"})
    by_token = True

    def __init__(
        self,
        exclude_keys: Sequence[str] = (SPECIAL,),
        exclude_queries: Sequence[str] = (SPECIAL,),
        average: str = "micro",
    ) -> None:
        super().__init__()
        if average not in AVERAGES:
            raise UserError(f'average must be "micro" (over queries) or "document" (over sentences). Got {average}.')
        self.exclude_keys, self.exclude_queries = tuple(exclude_keys), tuple(exclude_queries)
        self.average = average
        self._roles = Roles(ids={})
        self._read: dict[AttentionKey, dict[int, _Layer]] = {}

    @abstractmethod
    def sums(self, weights: Weights, rows: AttentionRows) -> Float[Tensor, "sentence head *x"]:
        """Sums over the queries of each sentence, in float64."""

    def count(self, rows: AttentionRows) -> Float[Tensor, "sentence *x"]:
        """Number of queries in each sum."""
        return rows.queries.sum(1).double()

    def chance(self, rows: AttentionRows) -> Float[Tensor, "sentence head=1 *x"]:
        """The sums for a control head with equal weights on all keys that the model lets a query see."""
        return self.sums(rows.uniform, rows)

    def keys(self) -> list[dict[str, Any]]:
        """The key columns of each entry along X; one empty dictionary if the score has no further axis."""
        return [{}]

    def scale(self, extra: dict[str, Any]) -> Scale:
        """Range of the score in the row with these keys."""
        return "share"

    def of(self, attention: Attention, valid: Array, *annotation: Any, **named: Any) -> Float[Tensor, "layer head *x"]:
        """Mean computed from arrays, without a model; NaN if nothing counts.

        Args:
            attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
            valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
            annotation: Information about the tokens that the statistic needs, see `rows_of`.
            named: The same information, passed by keyword.
        """
        weights, mask = check_attention(attention, valid)
        rows = self.rows_of(mask, *annotation, **named)
        parts = {
            "score": torch.stack([self.sums(layer, rows) for layer in weights], dim=1),
            "count": self.count(rows).unsqueeze(1),
        }
        if self.average == "document":
            parts = _per_document(**parts)
        return (parts["score"].sum(0) / parts["count"].sum(0).unsqueeze(1)).to(weights.dtype)

    def rows_of(self, valid: Bool[Tensor, "sentence token"], *args: Any, **kwargs: Any) -> AttentionRows:
        """The queries and keys that count, for `of`; subclasses may take further arguments."""
        return AttentionRows.of_tokens(valid)

    def _rows(self, activations: Activations, key: AttentionKey, visible: Pairs) -> AttentionRows:
        """The queries and keys that count in a layer; subclasses may add further data."""

        def make() -> AttentionRows:
            return AttentionRows.of_activations(
                activations,
                key,
                self._kept(activations.queries_stream(key), key[0], self.exclude_queries)
                & activations.queries_stream(key).counted,
                self._kept(activations.keys_stream(key), keys_stack(*key), self.exclude_keys),
                visible,
            )

        excluded = self.exclude_queries, self.exclude_keys
        if {*excluded[0], *excluded[1]} <= {SPECIAL}:
            return activations.shared((*key, *excluded), (visible,), make)
        return make()  # measures may differ in what they call punctuation

    def _kept(self, stream: Stream, stack: str, excluded: Sequence[str]) -> Bool[Tensor, "sentence token"]:
        kept = stream.real
        for role in excluded:
            kept = kept & ~self._roles.where(stream, stack, role)
        return kept

    def prepare(self, reader: Reader) -> None:
        known = {SPECIAL, PUNCTUATION, *NAMED}
        custom = [role for role in (*self.exclude_keys, *self.exclude_queries) if role not in known]
        self._roles = Roles.of(reader, custom=custom)

    def update(self, activations: Activations) -> None:
        for key, layers in activations.attention.items():
            for layer, (weights, mask) in enumerate(zip(layers, activations.visible_keys(key), strict=True)):
                own = {"attention": {key: [weights]}, "visible": {key: [mask]}, "mask": (mask,)}
                self.update_block(replace(activations, **own), layer)
        for key, by_layer in self._read.items():
            if any(layer.score.shape[1] for layer in by_layer.values()):  # a pruned model may have lost all its heads
                self._add_parts(key, _all_layers(by_layer, activations.model, key[0]), activations)
        self._read = {}

    def update_block(self, activations: Activations, layer: int) -> None:
        """Add a layer's attention, or some of its queries in a long text, see `AttentionByBlocks`."""
        ((key, (weights,)),) = activations.attention.items()
        (visible,) = activations.visible_keys(key)
        rows = activations.shared((*key, id(self)), (visible,), lambda: self._rows(activations, key, visible))
        score, read = self.sums(weights.float(), rows), self._read.setdefault(key, {})
        mask = activations.mask or (visible,)
        same = (one.control for one in read.values() if all(map(operator.is_, one.control.mask, mask)))
        control = next(same, None)
        if control is None:
            control = _Control(mask, layer, self.count(rows), self.chance(rows))
        elif control.layer == layer:
            control.count += self.count(rows)
            control.uniform += self.chance(rows)
        if layer in read:
            read[layer].score += score  # in place: small results between large temporary ones fragment memory
        else:
            read[layer] = _Layer(score, control)

    def _add_parts(self, key: AttentionKey, layers: Sequence[_Layer], activations: Activations) -> None:
        parts = {
            "score": _stacked([layer.score.cpu() for layer in layers]),
            "count": torch.stack([layer.control.count.cpu() for layer in layers], dim=1),
            "uniform": torch.stack([layer.control.uniform.cpu() for layer in layers], dim=1),
        }
        if self.average == "document":
            parts = _per_document(**parts)
        for name, part in parts.items():
            self._add(".".join((*key, name)), _by_block(part, activations.blocks.cpu()))

    def result(self) -> pd.DataFrame:
        states: dict[AttentionKey, dict[str, np.ndarray]] = {}
        for name, array in self._sums.items():
            stack, kind, part = name.split(".")
            states.setdefault((stack, kind), {})[part] = array
        rows = [row for key, sums in states.items() for row in self._head_rows(key, sums)]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _head_rows(self, key: AttentionKey, sums: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        """The rows of all heads; sums other than score, count and uniform are controls with their own columns."""
        score = sums["score"].reshape(*sums["score"].shape[:3], -1)
        _, num_layers, num_heads, num_scores = score.shape
        count = sums["count"].reshape(NUM_BLOCKS, num_layers, num_scores)
        with np.errstate(invalid="ignore", divide="ignore"):
            controls = {
                name: np.broadcast_to(
                    part.reshape(NUM_BLOCKS, num_layers, -1, num_scores).sum(0) / count.sum(0)[:, None], score.shape[1:]
                )
                for name, part in sums.items()
                if name not in ("score", "count")
            }
        baselines = controls.pop("uniform")
        return [
            {
                **head_keys(*key, layer, head),
                **extra,
                **{name: values[layer, head, x] for name, values in controls.items()},
                **ratio_estimate(
                    score[:, layer, head, x], count[:, layer, x], baselines[layer, head, x], self.scale(extra)
                ),
            }
            for layer in range(num_layers)
            for head in range(num_heads)
            if not np.isnan(score[:, layer, head]).any(axis=0).all()  # a pruned head
            for x, extra in enumerate(self.keys())
        ]


def _all_layers(by_layer: dict[int, _Layer], model: Model, stack: str) -> list[_Layer]:
    """The sums of every layer; a layer without attention (hybrid models) has none for its 0 heads."""
    known = next(iter(by_layer.values()))
    none = _Layer(known.score[:, :0], known.control)
    last = max(*by_layer, len(model.anatomy.stack(stack).layers) - 1)
    return [by_layer.get(layer, none) for layer in range(last + 1)]


def _stacked(layers: list[Tensor]) -> Float[Tensor, "sentence layer head *x"]:
    """The layers' scores stacked; NaN where a layer of a pruned model has fewer heads than another."""
    most = max(layer.shape[1] for layer in layers)
    stacked = layers[0].new_full((len(layers[0]), len(layers), most, *layers[0].shape[2:]), torch.nan)
    for index, layer in enumerate(layers):
        stacked[:, index, : layer.shape[1]] = layer
    return stacked


def compact(estimate: dict[str, Any]) -> dict[str, Any]:
    """The columns of an estimate with replicates rounded to five decimals, for tables with thousands of rows."""
    return {**estimate, "replicates": np.round(estimate["replicates"], 5).tolist()}


def _per_document(score: Tensor, count: Tensor, **controls: Tensor) -> dict[str, Tensor]:
    """Each sentence's mean, and 1 for each sentence that has one; `count` has no axis for heads."""
    size = count.clamp(min=1).unsqueeze(2)
    means = {name: sums / size for name, sums in controls.items()}
    return {"score": score / size, "count": (count > 0).double(), **means}


def _by_block(values: Float[Tensor, "sentence *rest"], blocks: Tensor) -> np.ndarray:
    """Sums over the sentences of each bootstrap block."""
    sums = torch.zeros(NUM_BLOCKS, *values.shape[1:], dtype=torch.float64)
    return sums.index_add_(0, blocks, values).numpy()
