"""How much frequent and rare tokens influence the other tokens of their sentence, block by block."""

# L block, N influenced occurrence, D width; the axis of two: the block's output with the token, and without it

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import Intervention, PassOptions, RankStrata, Reader
from infoflow.foundation import current_display
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns

from ._cca import canonical_of
from ._frequency_bins import GROUPS, RANK_EDGES, bin_columns, bin_keys, check_bins, equal_bins
from ._influence_targets import InfluenceTargets, Pool, draw_targets
from ._influenced_states import BYTES_PER_NUMBER, InfluencedStates
from ._paired_distance import BlockGroups, LayerView, paired_distance
from ._pwcca import check_side, weighted_mean

INFLUENCE_BY_FREQUENCY = TableSchema(
    name="influence_by_frequency",
    version=1,
    description="How much a block's output at the other tokens of a sentence changes when one token is removed as key "
    "and value from that block's self-attention, by the removed token's frequency rank. Each sentence loses at most "
    "one token of a bin, drawn by hash. All bins of a stack have the same number of occurrences; bins with too few are "
    "left out.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="block", dtype="int64", unit="", description="block 0..L−1; its output is state block + 1"),
        *bin_columns(),
        Column(
            name="pool",
            dtype="string",
            unit="",
            description="whose states are compared: others (all other tokens of the sentence) or after (later ones)",
        ),
        *estimate_columns(
            "1 − PWCCA",
            "distance between the block's outputs with and without the token",
            "the same for a token drawn from the same sentence whatever its rank",
            "number of influenced occurrences",
        ),
        Column(name="width", dtype="int64", unit="dimensions", description="width of the states"),
        Column(
            name="side", dtype="string", unit="", description="the view that weights: mean, x (with the token) or y"
        ),
    ),
)


class InfluenceByFrequency(Intervention):
    r"""1 − PWCCA between a block's output with and without one token in its self-attention, at the other tokens.

    $$ \mathrm{influence}(B, b) = 1 - \mathrm{PWCCA}\big(f_b(H_b),\, f_b^{-t}(H_b)\big) $$

    | symbol     | here                                                                 | space                  |
    |------------|----------------------------------------------------------------------|------------------------|
    | $B$        | a frequency bin; in each sentence one token $t$ of it is removed     | sentences              |
    | $H_b$      | input of block $b$, from the unchanged blocks below                  | $\mathbb R^d$ per token  |
    | $f_b$      | the block                                                            |                        |
    | $f_b^{-t}$ | the block with $t$ removed as key and value (`without_token`)        |                        |

    Rows are the other tokens of all drawn sentences ("others"); in a causal stack also only the later ones ("after"),
    since tokens before t cannot change and dilute the value. Special tokens are never removed or compared, and
    sentences of one token are skipped. Each sentence provides at most one target per bin, chosen by hash
    (`draw_targets`), and all bins give PWCCA the same number of rows (`equal_bins`).

    Every sentence runs once, and each block again on its own input without the token (`rerun_blocks`). Error bars
    resample sentences to first order as in `LayerDistance`, with 16 groups of bootstrap blocks. The baseline removes,
    from the same sentences, a token of any rank: if influence did not depend on frequency, every bin would equal its
    baseline. Tokens of short sentences influence more, and rare tokens occur in longer ones, so another sample of
    sentences would not be a fair control.

    Args:
        per_bin: Maximum influenced occurrences for each bin; at least 10, better 20, per dimension.
        edges: Ranks at which bins begin, and the rank at which the last one ends; 1 is the most frequent token.
        side: The weighting view; see `pwcca`.
        decoder: Also measure the decoder of an encoder–decoder, if the corpus has translations.

    Source: [@voita2019evolution].
    """

    table: ClassVar[TableSchema] = INFLUENCE_BY_FREQUENCY

    def __init__(
        self, per_bin: int = 3000, edges: Sequence[int] = RANK_EDGES, side: str = "mean", decoder: bool = False
    ) -> None:
        check_bins(per_bin, edges)
        check_side(side)
        self.per_bin, self.edges, self.side, self.decoder = per_bin, tuple(edges), side, decoder

    def refusal(self, model: Model) -> str | None:
        """Refuses models in which a token removed from attention would still reach the others."""
        return model.anatomy.beside_attention()

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        stacks = [reader.source_stack]
        if self.decoder and reader.has_target and "decoder" not in stacks:
            stacks.append("decoder")
        rows = [row for stack in stacks for row in self._stack_rows(reader, stack, options)]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _stack_rows(self, reader: Reader, stack: str, options: PassOptions) -> list[dict]:
        anatomy = reader.model.anatomy.stack(stack)
        pools: tuple[Pool, ...] = ("others", "after") if anatomy.causal else ("others",)
        affordable = options.sample_bytes // (BYTES_PER_NUMBER * len(anatomy.layers) * anatomy.width * len(pools))
        strata = RankStrata(edges=self.edges, per_bin=max(1, min(self.per_bin, affordable)))
        drawn = draw_targets(reader, stack, strata, pools)
        counts = np.array([drawn[i].size(pools) if i in drawn else 0 for i in range(strata.num)])
        chosen = equal_bins(counts, self.edges, anatomy.width, strata.per_bin)
        influenced, rows = InfluencedStates(reader, stack, pools, chosen.size, options), []
        label = f"Removing tokens in {reader.model.name}"
        with current_display().progress(label, len(chosen.bins), "bins") as progress:
            for index in chosen.bins:
                rows += [{**row, **bin_keys(self.edges, index)} for row in self._bin_rows(influenced, drawn[index])]
                progress.advance(1)
        return rows

    def _bin_rows(self, influenced: InfluencedStates, targets: InfluenceTargets) -> list[dict]:
        """One row for each pool and block."""
        states_L2ND, rows = influenced.of(targets), []
        for pool in influenced.pools:
            own_L2ND, control_L2ND = states_L2ND["target", pool], states_L2ND["control", pool]
            width = own_L2ND.shape[-1]
            groups = BlockGroups.of(influenced.blocks(targets, pool), width, GROUPS)
            keys = {"stack": influenced.stack, "pool": pool, "width": width, "side": self.side}
            for block, (own, control) in enumerate(zip(own_L2ND, control_L2ND, strict=True)):
                with_token, without = (LayerView(view, groups) for view in own)
                distance = paired_distance(with_token, without, self.side)
                baseline = 1 - weighted_mean(canonical_of(*control), self.side)
                numbers = distance.columns(baseline, influenced.size)
                rows.append({**keys, "block": block, **numbers})
        return rows
