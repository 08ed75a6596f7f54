"""Where attention goes on the surface: to neighbours, to the ends of a sentence, to special tokens, to punctuation."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ._roles import PUNCTUATION
from ._rows import AttentionRows

OFFSETS: Mapping[str, int] = {"self": 0, "previous": -1, "next": 1}
"""Statistics of a key's place relative to the query."""
ENDS = ("first", "last")
_EVERYWHERE = (*ENDS, PUNCTUATION)
"""Statistics that count a sentence without such a key as 0."""
ENTROPIES = ("entropy", "first_token_entropy")
SEPARATORS = ("sep_to_sep", "rest_to_sep")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SurfaceRows(AttentionRows):
    """Rows, and which tokens the statistics are about."""

    keys: Mapping[str, Bool[Tensor, "sentence key"]]
    """By statistic: the keys whose attention is summed."""
    first_query: Bool[Tensor, "sentence query"]
    separators: Bool[Tensor, "sentence query"]
    """Queries that are SEP."""

    @property
    def statistics(self) -> tuple[str, ...]:
        return (*OFFSETS, *self.keys, *SEPARATORS, *ENTROPIES)


def surface_sums(
    weights: Float[Tensor, "sentence head query key"], rows: SurfaceRows, smoothing: float
) -> Float[Tensor, "sentence head statistic"]:
    r"""Sums over queries of the attention on chosen keys, then of the queries' entropies in nats.

    $$ \sum_{i \in Q} \sum_{j \in S(i)} a_{ij}, \qquad -\sum_{i \in Q} \sum_j \tilde a_{ij} \ln \tilde a_{ij},
       \quad \tilde a = (1 - ε) a + ε / |K_i| $$

    S(i) are the keys that a statistic is about (`OFFSETS`, then `rows.keys`). A query without such a key adds nothing
    and still counts: the first token has no previous one.

    Source: [@clark2019], the authors' code.
    """
    # Filled, not multiplied: rows of padding may hold NaN.
    kept = weights.masked_fill(~rows.admissible.unsqueeze(1), 0)
    near = torch.stack([rows.admissible & (rows.offset == offset) for offset in OFFSETS.values()], dim=3)
    on_offsets = kept.flatten(2) @ near.flatten(1, 2).to(kept)  # sentence, head, offset
    on_keys = kept @ torch.stack(list(rows.keys.values()), dim=2).unsqueeze(1).to(kept)  # …, query, role
    on_separator = on_keys[..., list(rows.keys).index("sep")]
    parts = [on_offsets.double(), on_keys.double().sum(2)]
    parts += [_over(on_separator, queries).unsqueeze(2) for queries in (rows.separators, ~rows.separators)]
    entropy = _entropies(kept, rows, smoothing)
    parts += [_over(entropy, queries).unsqueeze(2) for queries in (rows.queries, rows.first_query)]
    return torch.cat(parts, dim=2)


def surface_counts(rows: SurfaceRows) -> Float[Tensor, "sentence statistic"]:
    """Queries that each sum is over; none for a special token that no key of the sentence is.

    A sentence without punctuation counts: there is no attention on it. The authors of [@clark2019] sum A · selector
    over n in every document, and the selector of such a document is 0.
    """
    queries = rows.queries.sum(1).double()
    counts = [queries] * len(OFFSETS)
    counts += [queries * keys.any(1) if name not in _EVERYWHERE else queries for name, keys in rows.keys.items()]
    has_separator = rows.keys["sep"].any(1)
    counts += [(rows.queries & chosen).sum(1) * has_separator for chosen in (rows.separators, ~rows.separators)]
    counts += [queries, (rows.queries & rows.first_query).sum(1)]
    return torch.stack([count.double() for count in counts], dim=1)


def uniform(rows: AttentionRows) -> Float[Tensor, "sentence head=1 query key"]:
    """The control: a head that attends to all its keys alike."""
    return (rows.admissible / rows.num_keys.clamp(min=1).unsqueeze(2)).unsqueeze(1)


def _over(scores: Float[Tensor, "sentence head query"], queries: Bool[Tensor, "sentence query"]) -> Tensor:
    return scores.double().masked_fill(~queries.unsqueeze(1), 0).sum(2)


def _entropies(kept: Tensor, rows: AttentionRows, smoothing: float) -> Float[Tensor, "sentence head query"]:
    floor = smoothing * uniform(rows)
    return torch.special.entr((1 - smoothing) * kept + floor.to(kept)).sum(3, dtype=torch.float64)
