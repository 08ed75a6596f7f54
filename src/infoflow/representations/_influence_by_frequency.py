"""How much frequent and rare tokens influence the other tokens of their sentence, block by block."""

# B sentence, T token, L block, N influenced occurrence, D width; the axis of two: block's output with and without it

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.flow import Intervention, PassOptions, RankStrata, Reader, cut_to_budget, forward
from infoflow.foundation import UserError, block_of, current_display, hash64_array
from infoflow.models import BlockRerun, Model, rerun_blocks, without_token
from infoflow.results import Column, TableSchema, estimate_columns

from ._block_groups import BlockGroups
from ._cca import canonical_of, check_side, weighted_mean
from ._change_by_frequency import BIN_COLUMNS, GROUPS, RANK_EDGES, bin_keys, check_bins, equal_bins, too_few_by_default
from ._paired_distance import LayerView, paired_distance

Pool = Literal["others", "after"]
Role = Literal["target", "control"]
ROLES: tuple[Role, ...] = ("target", "control")
_CHUNK = 4096  # sentences read at a time, in drawing order, until every bin is full


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InfluenceTargets:
    """Sentences in drawing order, each with a token of one bin to remove (the target) and a control.

    The control is a token of the same sentence with any rank, so both are removed from sentences of equal length.
    """

    row: np.ndarray  # int64, row of the encoded corpus
    sentence: np.ndarray  # int64, `Corpus.content_ids`
    length: np.ndarray  # int64, tokens of the row, special ones included
    others: np.ndarray  # int64, number of other tokens of the row, without special ones
    target: np.ndarray  # int64, index of the target among the row's tokens
    after_target: np.ndarray  # int64, number of other tokens after the target
    control: np.ndarray  # int64, index of the control among the row's tokens
    after_control: np.ndarray  # int64

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: np.ndarray | slice) -> "InfluenceTargets":
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def counts(self, role: Role, pool: Pool) -> np.ndarray:
        """(sentences,) number of occurrences that the removed token may influence."""
        return self.others if pool == "others" else getattr(self, f"after_{role}")

    def starts(self, role: Role, pool: Pool) -> np.ndarray:
        """(sentences,) number of occurrences that may be influenced in all preceding sentences."""
        counts = self.counts(role, pool)
        return counts.cumsum() - counts

    def size(self, pools: Sequence[Pool]) -> int:
        """Number of occurrences that every pool has, for targets and controls."""
        return min(int(self.counts(role, pool).sum()) for role in ROLES for pool in pools)

    def enough_for(self, size: int, pools: Sequence[Pool]) -> "InfluenceTargets":
        """The first sentences that provide `size` occurrences for every pool."""
        last = max(int((self.starts(role, pool) < size).sum()) for role in ROLES for pool in pools)
        return self.take(slice(last))


def draw_targets(reader: Reader, stack: str, strata: RankStrata, pools: Sequence[Pool]) -> dict[int, InfluenceTargets]:
    """Targets of every bin until they influence `strata.per_bin` occurrences, or sentences run out.

    Sentences are ordered by a hash of (seed, sentence id), the same for every bin and model. In each sentence the
    control is the token with the lowest hash of (seed, sentence id, position), and the target is the token of the bin
    with the lowest hash. A sentence of a single token influences nothing and is skipped.
    """
    ranks = reader.ranks[stack]
    occupied = np.unique(strata.of(ranks))
    drawn: dict[int, list[InfluenceTargets]] = {int(index): [] for index in occupied[occupied >= 0]}
    sizes = dict.fromkeys(drawn, 0)
    for tokens, ids in _chunks(reader, stack):
        bins, controls = strata.of(ranks[ids]), tokens.take(_one_per_sentence(tokens, reader.seed))
        for index in [index for index in drawn if sizes[index] < strata.per_bin]:
            inside = tokens.take(bins == index)
            found = _with_controls(inside.take(_one_per_sentence(inside, reader.seed)), controls)
            drawn[index].append(found)
            sizes[index] += found.size(pools)
        if min(sizes.values(), default=strata.per_bin) >= strata.per_bin:
            break
    return {index: _concatenate(parts) for index, parts in drawn.items()}


def _chunks(reader: Reader, stack: str) -> Iterator[tuple[InfluenceTargets, np.ndarray]]:
    """Every token as a possible target, with its id; a few thousand sentences at a time, in drawing order."""
    rows = reader.rows
    sentences = reader.corpus.content_ids[rows]
    rows = rows[np.lexsort((sentences, hash64_array(("influence-sentence", reader.seed), sentences)))]
    for start in range(0, len(rows), _CHUNK):
        parts, ids = zip(*(_tokens(reader, stack, int(row)) for row in rows[start : start + _CHUNK]), strict=True)
        yield _concatenate(list(parts)), np.concatenate(ids)


def _tokens(reader: Reader, stack: str, row: int) -> tuple[InfluenceTargets, np.ndarray]:
    sentence = reader.sentence_rows(row, "clean", 0)[stack]
    position = np.flatnonzero(~sentence.special)
    if len(position) == 1:
        position = position[:0]
    num = len(position)
    each, later = np.ones(num, dtype=np.int64), np.arange(num)[::-1]
    targets = InfluenceTargets(
        row=each * row,
        sentence=each * int(reader.corpus.content_ids[row]),
        length=each * len(sentence.tokens),
        others=each * (num - 1),
        target=position,
        after_target=later,
        control=position,
        after_control=later,
    )
    counted = np.flatnonzero(sentence.counted[position])
    return targets.take(counted), sentence.tokens[position[counted]]


def _one_per_sentence(tokens: InfluenceTargets, seed: int) -> np.ndarray:
    """Indices of each sentence's target with the lowest hash, sentences in order."""
    hashes = hash64_array(("influence-token", seed), tokens.sentence, tokens.target)
    order = np.lexsort((tokens.target, hashes, tokens.row))
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.diff(tokens.row[order]) != 0
    return np.sort(order[first])


def _with_controls(targets: InfluenceTargets, controls: InfluenceTargets) -> InfluenceTargets:
    """The targets with the controls of their sentences; both are in drawing order."""
    own = controls.take(np.isin(controls.row, targets.row))
    return replace(targets, control=own.target, after_control=own.after_target)


def _concatenate(parts: list[InfluenceTargets]) -> InfluenceTargets:
    return InfluenceTargets(
        **{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(InfluenceTargets)}
    )


Influenced = dict[tuple[Role, Pool], np.ndarray]
"""For each removed token and pool, (L, 2, N, D) float32: every block's output with and without the token."""
BYTES_PER_NUMBER = 4 * 2 * len(ROLES)


class InfluencedStates:
    """Runs sentences with and without a token; each pool gets its first `size` occurrences in drawing order."""

    def __init__(self, reader: Reader, stack: str, pools: Sequence[Pool], size: int, options: PassOptions) -> None:
        self.stack, self.pools, self.size = stack, tuple(pools), size
        self._reader, self._options = reader, options
        self._anatomy = reader.model.anatomy.stack(stack)

    def of(self, targets: InfluenceTargets) -> Influenced:
        """The states of one bin's sentences."""
        targets = targets.enough_for(self.size, self.pools)
        shape = (len(self._anatomy.layers), 2, self.size, self._anatomy.width)
        states: Influenced = {(role, pool): np.empty(shape, dtype=np.float32) for role in ROLES for pool in self.pools}
        with torch.inference_mode():
            for index in self._batches(targets):
                self._fill(states, targets, index)
        return states

    def blocks(self, targets: InfluenceTargets, pool: Pool) -> np.ndarray:
        """(N,) the bootstrap block of each influenced occurrence."""
        return block_of(np.repeat(targets.sentence, targets.counts("target", pool))[: self.size])

    def _batches(self, targets: InfluenceTargets) -> list[np.ndarray]:
        """Batches by length, within the token budget and the byte budget for one layer's attention weights."""
        heads = max(layer.attentions["self"].num_heads for layer in self._anatomy.layers)
        batches = self._reader.even(targets.row, length_batches(targets.length, self._options.tokens_per_batch))
        return cut_to_budget(
            batches, lambda index: int(targets.length[index].max()), heads, self._options.attention_bytes
        )

    def _fill(self, states: Influenced, targets: InfluenceTargets, index: np.ndarray) -> None:
        """Run one batch and store its states."""
        removed: dict[Role, Tensor] = {role: torch.from_numpy(getattr(targets, role)[index]) for role in ROLES}
        valid_BT, blocks = self._run(targets.row[index], removed)
        for (role, pool), states_L2ND in states.items():
            influenced_BT = _influenced(valid_BT, removed[role], pool)
            starts = torch.from_numpy(targets.starts(role, pool)[index])
            place_BT = starts.unsqueeze(1) + influenced_BT.cumsum(1) - 1
            used_BT = influenced_BT & (place_BT < self.size)
            place = place_BT[used_BT].numpy()
            for layer, block in enumerate(blocks):
                for version, output in enumerate((block.kept, block.edited[ROLES.index(role)])):
                    picked = output[used_BT.to(output.device)].float().cpu().numpy()
                    self._check_finite(picked, layer + 1, targets.row[index][used_BT.nonzero()[:, 0].numpy()])
                    states_L2ND[layer, version, place] = picked

    def _run(
        self, rows: np.ndarray, removed: Mapping[Role, Int[Tensor, " sentence"]]
    ) -> tuple[Bool[Tensor, "sentence token"], list[BlockRerun]]:
        """The mask of tokens that are not special, and the outputs of every block."""
        model = self._reader.model
        batch = self._reader.padded(rows)
        valid_BT = batch.streams[self.stack].valid
        if self.stack == self._reader.source_stack:  # an encoder runs without its decoder
            batch = replace(batch, streams={self.stack: batch.streams[self.stack]})
        batch = batch.to(model.device)
        edits = [partial(without_token, token=removed[role].to(model.device)) for role in ROLES]
        return valid_BT, rerun_blocks(model, self.stack, edits, lambda: forward(model, batch))

    def _check_finite(self, picked: np.ndarray, layer: int, rows: np.ndarray) -> None:
        if not np.isfinite(picked.sum()):
            first = rows[~np.isfinite(picked).all(axis=1)][0]
            raise UserError(
                f"{self._reader.model.name} has NaN or infinite states in its {self.stack}, layer {layer}, sentence "
                f"{self._reader.corpus.ids[first]}.\nLoad it in float32, or remove that sentence from the corpus."
            )


def _influenced(
    valid_BT: Bool[Tensor, "sentence token"], removed: Int[Tensor, " sentence"], pool: Pool
) -> Bool[Tensor, "sentence token"]:
    """The tokens whose states are compared. Rows are padded on the right, so columns are positions."""
    column = torch.arange(valid_BT.shape[1])
    return valid_BT & (column > removed.unsqueeze(1) if pool == "after" else column != removed.unsqueeze(1))


INFLUENCE_BY_FREQUENCY = TableSchema(
    name="influence_by_frequency",
    description="How much a block's output at the other tokens of a sentence changes when one token is removed as key "
    "and value from that block's self-attention, by the removed token's frequency rank. Each sentence loses at most "
    "one token of a bin, drawn by hash. All bins of a stack have the same number of occurrences; bins with too few are "
    "left out.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("block", "int64", "", "block 0..L−1; its output is state block + 1"),
        *BIN_COLUMNS,
        Column(
            "pool",
            "string",
            "",
            "whose states are compared: others (all other tokens of the sentence) or after (later ones)",
        ),
        *estimate_columns(
            "1 − PWCCA",
            "distance between the block's outputs with and without the token",
            "the same distance for a token of any rank, drawn from the same sentence",
            "number of influenced occurrences",
        ),
        Column("width", "int64", "dimensions", "width of the states"),
        Column("side", "string", "", "the view that gives the weights: x (with the token), y, or mean"),
    ),
)


class InfluenceByFrequency(Intervention):
    r"""How much one token influences the others in a block: 1 − PWCCA of their outputs with and without it.

    $$ \mathrm{influence}(B, b) = 1 - \mathrm{PWCCA}\big(f_b(H_b),\, f_b^{-t}(H_b)\big) $$

    | symbol     | here                                                                 | space                  |
    |------------|----------------------------------------------------------------------|------------------------|
    | $B$        | a frequency bin; in each sentence one token $t$ of it is removed     | sentences              |
    | $H_b$      | input of block $b$, from the unchanged blocks below                  | $\mathbb R^d$ per token  |
    | $f_b$      | the block                                                            |                        |
    | $f_b^{-t}$ | the block with $t$ removed as key and value (`without_token`)        |                        |

    The rows are the other tokens of all drawn sentences ("others"). In a causal stack, tokens before t cannot change,
    which lowers the value, so there are also values for the later tokens only ("after"). Special tokens are never
    removed or compared, and sentences of one token are skipped. Each sentence provides at most one target per bin,
    chosen by hash (`draw_targets`), and all bins give PWCCA the same number of rows (`equal_bins`).

    Every sentence runs once; then each block runs again on its own input, without the token (`rerun_blocks`). Error
    bars resample sentences to first order as in `LayerDistance`, with 16 groups of bootstrap blocks. The baseline
    removes, from the same sentences, a token of any rank. If influence did not depend on frequency, every bin would
    equal its baseline. Other sentences would not be a fair control, since tokens in short sentences influence more, and
    rare tokens occur in longer ones.

    Args:
        per_bin: Maximum number of influenced occurrences for each bin; at least 10, preferably 20, per dimension.
        edges: Ranks at which bins begin, and the rank at which the last one ends; 1 is the most frequent token.
        side: The view that gives the weights; see `pwcca`.
        decoder: Also measure the decoder of an encoder–decoder, if the corpus has translations.

    Source: [@voita2019evolution].
    """

    table: ClassVar[TableSchema] = INFLUENCE_BY_FREQUENCY
    whole_attention: ClassVar[bool] = True
    by_token = True

    def __init__(
        self, per_bin: int = 3000, edges: Sequence[int] = RANK_EDGES, side: str = "mean", decoder: bool = False
    ) -> None:
        check_bins(per_bin, edges)
        check_side(side)
        self.per_bin, self.edges, self.side, self.decoder = per_bin, tuple(edges), side, decoder

    def refusal(self, model: Model) -> str | None:
        """Refuses models in which a token influences others through anything other than attention."""
        return model.anatomy.outside_attention()

    def unless_named(self, width: int) -> str | None:
        return too_few_by_default(self.per_bin, width)

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
        chosen, size = equal_bins(counts, self.edges, anatomy.width, strata.per_bin)
        influenced, rows = InfluencedStates(reader, stack, pools, size, options), []
        label = f"Removing tokens in {reader.model.name}"
        with current_display().progress(label, len(chosen), "bins") as progress:
            for index in chosen:
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
                baseline = 1 - weighted_mean(canonical_of(*control), self.side)
                rows.append({**keys, "block": block, **paired_distance(with_token, without, self.side, baseline)})
        return rows
