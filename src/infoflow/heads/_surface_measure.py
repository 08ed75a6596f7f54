"""Surface statistics of every head over a corpus."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Reader
from infoflow.foundation import Scale, UserError
from infoflow.models import keys_stack
from infoflow.results import Column, TableSchema, estimate_columns

from ._head_measure import HEAD_KEYS, AbstractHeadMeasure, compact
from ._roles import NAMED, PUNCTUATION, SPECIAL, Roles
from ._surface import ENDS, ENTROPIES, OFFSETS, SEPARATORS, SurfaceRows, surface_counts, surface_sums, uniform

_STATISTICS = (*OFFSETS, *ENDS, SPECIAL, *NAMED, PUNCTUATION, *SEPARATORS, *ENTROPIES)

_SCHEMA = TableSchema(
    name="head_surface",
    version=2,
    description="Where the attention of a head goes, special tokens included: the mean share of a query's attention on "
    "chosen keys, and its entropy. Special tokens that a model does not have, or no sentence, have no row.",
    columns=(
        *HEAD_KEYS,
        Column(
            name="statistic",
            dtype="string",
            unit="",
            description="self, previous, next: the token at the query's own, previous or next place; first, last: the "
            "sentence's first or last token; special: all special tokens; cls, sep, bos, eos: those by name; "
            "punctuation, which is 0 in a sentence without any (before version 2 such sentences were left out); "
            "sep_to_sep, rest_to_sep: SEP from SEP, and from all others; entropy; first_token_entropy: entropy of the "
            "first token's attention (CLS in BERT)",
        ),
        *estimate_columns(
            "share of attention, or nats for entropies", "mean over queries", "uniform attention over the same keys"
        ),
    ),
)


class SurfaceStatistics(AbstractHeadMeasure):
    """Attention to neighbours, sentence ends, special tokens and punctuation, and entropy, of every head.

    Special tokens count as query and as key unless excluded (as in [@clark2019]; `Confidence` and `Entropy` follow
    [@voita2019heads] instead). Offsets compare positions among real tokens; in cross-attention "self" is the source
    token at the query's own place.

    Args:
        punctuation: Texts of the tokens that count as punctuation. A sentence without any counts as 0.
        smoothing: ε of $(1 - ε) a + ε/|K|$ before entropies.
        exclude_keys: Roles of tokens that are no keys, see `Confidence`.
        exclude_queries: Roles of tokens that are no queries.
        average: `"micro"`: over all queries; `"document"`: over sentences, as [@clark2019].

    Source: [@clark2019], the authors' code; the released plotting cell swaps "left" and "right".
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def __init__(
        self,
        punctuation: Sequence[str] = (".", ","),
        smoothing: float = 1e-4,
        exclude_keys: Sequence[str] = (),
        exclude_queries: Sequence[str] = (),
        average: str = "micro",
    ) -> None:
        super().__init__(exclude_keys, exclude_queries, average)
        if not 0 <= smoothing < 1:
            raise UserError(f"smoothing must lie in [0, 1). Got {smoothing}.")
        self.punctuation, self.smoothing = tuple(punctuation), smoothing

    def prepare(self, reader: Reader) -> None:
        super().prepare(reader)
        custom = [role for role in (*self.exclude_keys, *self.exclude_queries) if role not in _STATISTICS]
        self._roles = Roles.of(reader, self.punctuation, custom)

    def _rows(self, activations: Activations, key: AttentionKey) -> SurfaceRows:
        rows = super()._rows(activations, key)
        stack, target = key[0], keys_stack(*key)
        queries, keys = activations.streams[stack], activations.streams[target]
        last = keys.position.amax(1, keepdim=True)
        chosen = {"first": keys.position == 0, "last": (keys.position == last) & keys.real}
        chosen |= {role: self._roles.where(keys, target, role) for role in (SPECIAL, *NAMED, PUNCTUATION)}
        return SurfaceRows(
            admissible=rows.admissible,
            offset=rows.offset,
            keys=chosen,
            first_query=queries.position == 0,
            separators=self._roles.where(queries, stack, "sep"),
        )

    def _score(
        self, weights: Float[Tensor, "sentence head query key"], rows: SurfaceRows
    ) -> Float[Tensor, "sentence head statistic"]:
        return surface_sums(weights, rows, self.smoothing)

    def _count(self, rows: SurfaceRows) -> Float[Tensor, "sentence statistic"]:
        return surface_counts(rows)

    def _chance(self, rows: SurfaceRows) -> Float[Tensor, "sentence statistic"]:
        return surface_sums(uniform(rows), rows, self.smoothing)[:, 0]

    def _keys(self) -> list[dict[str, Any]]:
        return [{"statistic": statistic} for statistic in _STATISTICS]

    def _scale(self, extra: dict[str, Any]) -> Scale:
        return "positive" if "entropy" in extra["statistic"] else "share"

    def _head_rows(self, key: AttentionKey, sums: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        return [compact(row) for row in super()._head_rows(key, sums)]

    def result(self) -> pd.DataFrame:
        return super().result().dropna(subset=["value"])
