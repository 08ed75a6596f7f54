"""How much each layer changes frequent and rare tokens."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import RankStrata, SampleMeasure, SampleRequest, TokenSample
from infoflow.results import Column, TableSchema, estimate_columns

from ._frequency_bins import GROUPS, RANK_EDGES, bin_columns, bin_keys, check_bins, equal_bins
from ._paired_distance import BlockGroups, LayerView, distance_columns
from ._pwcca import check_side

CHANGE_BY_FREQUENCY = TableSchema(
    name="change_by_frequency",
    version=1,
    description="PWCCA distance between consecutive layers of tokens of one range of frequency ranks. All bins of a "
    "stack have the same number of occurrences; bins with too few are left out.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L−1; 0 = embeddings"),
        Column(name="next_layer", dtype="int64", unit="", description="the state after it, layer + 1"),
        *bin_columns(),
        *estimate_columns("1 − PWCCA", "distance between the two layers", "the same with the second's rows shuffled"),
        Column(name="width", dtype="int64", unit="dimensions", description="width of the states"),
        Column(name="side", dtype="string", unit="", description="the view that weights: mean, x (layer) or y"),
    ),
)


class ChangeByFrequency(SampleMeasure):
    r"""1 − PWCCA between consecutive layers, for the tokens of each frequency bin separately.

    $$ \mathrm{change}(B, l) = 1 - \mathrm{PWCCA}\big(H_l[B],\, H_{l+1}[B]\big) $$

    | symbol | here                                                        | space                  |
    |--------|-------------------------------------------------------------|------------------------|
    | $B$    | the same number of occurrences from every bin of `edges`    | occurrences            |
    | $H_l$  | `sample.states(l)`, 0 = embeddings                          | $\mathbb R^{n \times d}$ |

    Error bars as in `LayerDistance`, with 16 groups of bootstrap blocks at every width. The baseline shuffles the
    rows of the second layer within the bin.

    Args:
        per_bin: Maximum occurrences of each bin; at least 10, better 20, per dimension. `equal_bins` chooses the
            compared bins if a corpus has fewer.
        edges: Ranks at which bins begin, and the rank at which the last one ends; 1 is the most frequent token.
        side: The weighting view; see `pwcca`.

    Source: [@voita2019evolution].
    """

    table: ClassVar[TableSchema] = CHANGE_BY_FREQUENCY

    def __init__(self, per_bin: int = 3000, edges: Sequence[int] = RANK_EDGES, side: str = "mean") -> None:
        check_bins(per_bin, edges)
        check_side(side)
        self.per_bin, self.edges, self.side = per_bin, tuple(edges), side
        self.request = SampleRequest(strata=RankStrata(edges=self.edges, per_bin=per_bin))

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        bins = sample.rank_bins(self.edges)
        counts = np.bincount(bins[bins >= 0], minlength=len(self.edges) - 1)
        chosen = equal_bins(counts, self.edges, sample.width, self.per_bin)
        rows = []
        for index in chosen.bins:
            rows += self._bin_rows(sample.take(np.flatnonzero(bins == index)[: chosen.size]), index)
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _bin_rows(self, sample: TokenSample, index: int) -> list[dict]:
        groups = BlockGroups.of(sample.blocks, sample.width, GROUPS)
        rows, layer = [], LayerView(sample.states(0), groups)
        for number in range(sample.num_states - 1):
            following = LayerView(sample.states(number + 1), groups)
            keys = {"stack": sample.facts.stack, "layer": number, "next_layer": number + 1}
            columns = distance_columns(layer, following, self.side)
            rows.append({**keys, **bin_keys(self.edges, index), **columns, "width": sample.width, "side": self.side})
            layer = following
        return rows
