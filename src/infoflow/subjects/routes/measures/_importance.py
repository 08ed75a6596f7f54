"""How important each head, feed-forward block and residual connection is over a corpus, and its share of routes."""

# P prediction, K part of a model, X part and statistic, 64 bootstrap blocks

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.flow import Intervention, PassOptions, Reader, Stream, forward
from infoflow.foundation import NUM_BLOCKS, UserError, replicate_weights
from infoflow.heads import TokenTags
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate

from ._route import FEED_FORWARD, HEAD, RESIDUAL, THRESHOLD, Steps, followed
from ._shares import AttentionShares, BlockShares, refusal, watching

ALL = "all"
LABEL = "label"  # the class or domain of a sentence
IMPORTANCE, ROUTE, DOMAIN = "importance", "route", "domain"
_LEAST = 20  # minimum number of predictions of tokens with a tag

ROUTE_IMPORTANCE = TableSchema(
    name="route_importance",
    version=2,
    description="Importance of each head, feed-forward block and residual connection for the state of the token that "
    "predicts, and the share of predictions on whose route it lies.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "block, from 0"),
        Column("sublayer", "string", "", "self, cross (attention) or feed-forward: the sum that the part belongs to"),
        Column("part", "string", "", "head, feed-forward or residual"),
        Column("head", "int64", "", "head, from 0; -1: no head"),
        Column(
            "measure",
            "string",
            "",
            "importance: share of the part in the token's own state, mean over predictions (in an encoder with a "
            "decoder: over its tokens); route: share of predictions on whose route the part lies at any token; domain: "
            "the same for sentences with a label, minus the share for all others",
        ),
        Column("threshold", "float64", "share of a state", "least importance of an edge of a route"),
        Column("annotation", "string", "", "column of the corpus's tags; label: the sentence's; all: every prediction"),
        Column("tag", "string", "", "tag of the predicted token's word (in an encoder: of the token's own), or all"),
        *estimate_columns(
            "share",
            "the measure",
            "importance: the same share for all parts of the state; route: mean over all parts of that kind in the "
            "stack; for a tag: the value of all predictions; for a label: that of all other sentences; domain: 0",
            "predictions",
        ),
    ),
)


class RouteImportance(Intervention):
    r"""Mean importance of every part, and the share of predictions on whose information-flow route it lies.

    $$ \mathrm{importance}(h) = \frac{1}{|P|} \sum_{i \in P} \sum_j \mathrm{importance}(h, j \to i), \qquad
    \mathrm{route}(h) = \frac{1}{|P|} \sum_{i \in P} [h \in \mathrm{route}_τ(i)] $$

    P: the predictions (in a decoder, tokens that have a next one; in an encoder, all tokens except special ones).
    Importances are those of `find_route`; heads and residual of a sublayer add up to 1. A part lies on the route of a
    prediction if the route has one of its edges at any token. Sums are kept per block of sentences, so memory does not
    grow with the corpus. Decoders with an encoder have no rows by tag.

    If the sentences have labels, such as two domains, a part also has the difference from all other sentences,
    $\mathrm{route}_d(h) - \mathrm{route}_{\bar d}(h)$. For a head specific to a domain, the interval of this difference
    is above 0; a generic head lies on most routes of every domain.

    Args:
        sentences: Maximum number of sentences.
        threshold: Least importance of an edge of a route, 0 to 1.
        annotation: Column of the corpus with tags, such as parts of speech; no rows by tag if there is none.

    Source: [@ferrando2024] for decoders; the exact form of the means and shares over all predictions is ours.
    """

    table: ClassVar[TableSchema] = ROUTE_IMPORTANCE
    by_token: ClassVar[bool] = True

    def __init__(self, sentences: int = 1000, threshold: float = THRESHOLD, annotation: str = "upos") -> None:
        if sentences < 1:
            raise UserError(f"sentences must be at least 1. Got {sentences}.")
        if not 0 <= threshold < 1:
            raise UserError(f"threshold is a share of a state, at least 0 and below 1. Got {threshold}.")
        self.sentences, self.threshold, self.annotation = sentences, threshold, annotation

    def refusal(self, model: Model) -> str | None:
        return refusal(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        tags, sums = TokenTags(reader, [self.annotation]), _Sums()
        chosen = reader.rows[: self.sentences]
        labels, names = _labels(reader, chosen)
        top = reader.model.anatomy.predicts.name if reader.has_target else reader.source_stack
        for rows in reader.batches(options.tokens_per_batch, chosen):
            batch, seen = reader.padded(rows).to(reader.model.device), _Seen(least=self.threshold)
            real = {stack: stream.real for stack, stream in batch.streams.items()}
            with torch.inference_mode(), watching(reader.model, real, seen.add):
                forward(reader.model, batch)
            of_tag = tags.of(batch, top) if top == reader.source_stack else np.empty((0, 3), np.int64)
            sums.add(
                seen,
                {stack: _predictions(stack, stream) for stack, stream in batch.streams.items()},
                top,
                of_tag,
                np.array([labels.get(int(row), 0) for row in rows]),
                batch.blocks.numpy(),
            )
        rows = [row | {"threshold": self.threshold} for row in sums.rows([*tags.names, *names])]
        return pd.DataFrame(rows, columns=self.table.column_names)


def _labels(reader: Reader, chosen: np.ndarray) -> tuple[dict[int, int], list[tuple[str, str]]]:
    """Number of each sentence's label, counted from the end of the names (-1: the last); empty if all are the same."""
    if LABEL not in reader.corpus.columns:
        return {}, []
    wanted, own = set(chosen.tolist()), enumerate(reader.corpus.column(LABEL))
    found = {row: str(label) for row, label in own if row in wanted and label is not None}
    names = sorted(set(found.values()))
    if len(names) < 2:
        return {}, []
    return {row: names.index(label) - len(names) for row, label in found.items()}, [(LABEL, name) for name in names]


def _predictions(stack: str, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """The tokens whose states predict, (B, T), and the token that each one predicts."""
    valid, counted, labels = (each.cpu().numpy() for each in (stream.valid, stream.counted, stream.labels))
    own = np.broadcast_to(np.arange(valid.shape[1]), valid.shape)
    if stack == "encoder":
        return valid & counted, own
    following = np.minimum(own + 1, own.max(initial=0))
    return (labels >= 0) & np.take_along_axis(counted, following, 1), following


Part = tuple[str, int, str, str, int]  # stack, layer, sublayer, part, head


@dataclass(kw_only=True, slots=True, eq=False)
class _Seen:
    """The importances of a batch at each token, and its edges."""

    least: float
    parts: list[Part] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    shares: dict[str, list[Tensor]] = field(default_factory=dict)  # by stack: importance and control, (2, B, T, part)

    def add(self, block: BlockShares) -> None:
        for attention in block.attentions:
            heads = torch.cat([attention.heads.sum(3).mT, attention.residual.unsqueeze(2)], dim=2)
            self._add(block, attention.site.kind, HEAD, heads, _equal(attention))
            self.steps.append(Steps.of_attention(attention, self.least))
        both = torch.stack([block.feed_forward, 1 - block.feed_forward], dim=2)
        self._add(block, FEED_FORWARD, FEED_FORWARD, both, torch.full_like(both, 0.5))
        self.steps.append(Steps.of_feed_forward(block, self.least))

    def _add(self, block: BlockShares, sublayer: str, part: str, shares: Tensor, equal: Tensor) -> None:
        place = (block.stack, block.layer, sublayer)
        heads = range(shares.shape[2] - 1)
        self.parts += [(*place, part, head if part == HEAD else -1) for head in heads] + [(*place, RESIDUAL, -1)]
        self.shares.setdefault(block.stack, []).append(torch.stack([shares, equal]))


def _equal(attention: AttentionShares) -> Tensor:
    """The importance of each head and of the residual if all visible parts were equally important, (B, T, part)."""
    heads, keys_BT1 = attention.heads.shape[1], attention.visible.sum(2, keepdim=True)
    all_BT1 = heads * keys_BT1 + 1
    return torch.cat([(keys_BT1 / all_BT1).expand(-1, -1, heads), 1 / all_BT1], dim=2)


class _Sums:
    """Sums of importance, its control and presence on a route, by tag, block and part.

    Number 0 is every prediction, tags have numbers above it, and labels of sentences below.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._values: dict[int, np.ndarray] = {}  # (3, 64, part)
        self._counts: dict[int, np.ndarray] = {}  # (2, 64, part): of importances, of routes

    def add(
        self,
        seen: _Seen,
        predictions: dict[str, tuple[np.ndarray, np.ndarray]],
        top: str,
        tags: np.ndarray,
        labels: np.ndarray,
        blocks: np.ndarray,
    ) -> None:
        """Add a batch; `tags`: sentence, token and number of its tag in each row; `labels`: number of each sentence."""
        self.parts = seen.parts
        columns = np.array([part[0] for part in self.parts])
        routes = torch.cat(followed(seen.steps, top), dim=2).float().cpu().numpy()
        shares = {stack: torch.cat(each, dim=3).cpu().numpy() for stack, each in seen.shares.items()}
        predicts, predicted = predictions[top]
        sentences = np.arange(len(blocks))[:, None]
        wanted = {0: predicts} | {label: predicts & (labels == label)[:, None] for label in set(labels.tolist()) - {0}}
        for number in np.unique(tags[:, 2]).tolist():
            has_tag = np.zeros(predicts.shape, bool)
            has_tag[tuple(tags[tags[:, 2] == number, :2].T)] = True
            wanted[number] = predicts & has_tag[sentences, predicted]
        for number, chosen in wanted.items():
            values = self._values.setdefault(number, np.zeros((3, NUM_BLOCKS, len(self.parts))))
            counts = self._counts.setdefault(number, np.zeros((2, NUM_BLOCKS, len(self.parts))))
            np.add.at(values[2], blocks, np.einsum("btk,bt->bk", routes, chosen))
            np.add.at(counts[1], blocks, chosen.sum(1)[:, None])
            for stack, both in shares.items():
                kept = labels == number if number < 0 else np.ones(len(blocks), bool)
                own = chosen if stack == top else predictions[stack][0] & kept[:, None]
                summed = np.zeros((3, len(blocks), len(self.parts)))
                summed[:2, :, columns == stack] = np.einsum("abtk,bt->abk", both, own)
                summed[2][:, columns == stack] = own.sum(1)[:, None]
                np.add.at(values[0], blocks, summed[0])
                np.add.at(values[1], blocks, summed[1])
                np.add.at(counts[0], blocks, summed[2])

    def rows(self, names: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        kinds = [part[:1] + part[2:4] for part in self.parts]
        for number, values in sorted(self._values.items()):
            counts = self._counts[number]
            if counts[1].sum(0).max() < (_LEAST if number else 1):
                continue
            annotation, tag = names[number]
            every = self._means(number)
            for which, (measure, own, of) in enumerate(
                ((IMPORTANCE, values[0], counts[0]), (ROUTE, values[2], counts[1]))
            ):
                for index, part in enumerate(self.parts):
                    alike = [other for other, kind in enumerate(kinds) if kind == kinds[index]]
                    equal = values[1].sum(0)[index] / of.sum(0)[index] if not which else every[ROUTE][alike].mean()
                    control = float(every[measure][index] if number else equal)
                    at = dict(zip(("stack", "layer", "sublayer", "part", "head"), part, strict=True))
                    at |= {"annotation": annotation, "tag": tag}
                    yield at | {"measure": measure} | ratio_estimate(own[:, index], of[:, index], control, "share")
                    if number < 0 and which:
                        yield at | {"measure": DOMAIN} | self._difference(number, index)

    def _means(self, number: int) -> dict[str, np.ndarray]:
        """Importance and share of routes over all predictions; for a label, over predictions in all other sentences."""
        values, counts = ((one[0] - (one[number] if number < 0 else 0)).sum(1) for one in (self._values, self._counts))
        with np.errstate(invalid="ignore", divide="ignore"):
            return {IMPORTANCE: values[0] / counts[0], ROUTE: values[2] / counts[1]}

    def _difference(self, number: int, part: int) -> dict[str, Any]:
        """Share of routes in sentences with a label minus that in all others, both over the same blocks."""
        weights = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
        sums = weights @ np.stack([
            one[at][which, :, part]
            for at in (number, 0) for one, which in ((self._values, 2), (self._counts, 1))
        ], axis=1)  # fmt: skip
        with np.errstate(invalid="ignore", divide="ignore"):
            own, other = sums[:, 0] / sums[:, 1], (sums[:, 2] - sums[:, 0]) / (sums[:, 3] - sums[:, 1])
        return estimate(float(own[0] - other[0]), (own - other)[1:], 0.0, float(sums[0, 1]))
