"""The outputs of every block at the tokens that a removed token may influence."""

# B sentence, T token, L block, N influenced occurrence, D width

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.flow import PassOptions, Reader, forward
from infoflow.foundation import UserError, block_of
from infoflow.models import BlockRerun, rerun_blocks, without_token

from ._influence_targets import ROLES, InfluenceTargets, Pool, Role

Influenced = dict[tuple[Role, Pool], np.ndarray]
"""By removed token and compared states, (L, 2, N, D) float32: every block's output with and without it."""
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
        batches = []
        for index in self._reader.even(targets.row, length_batches(targets.length, self._options.tokens_per_batch)):
            sentence_bytes = 4 * heads * int(targets.length[index].max()) ** 2
            size = max(1, self._options.attention_bytes // max(1, sentence_bytes))  # a pruned model may have no heads
            batches += [index[start : start + size] for start in range(0, len(index), size)]
        return batches

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
    """The tokens whose states are compared; rows are right-padded, so that columns are positions."""
    column = torch.arange(valid_BT.shape[1])
    return valid_BT & (column > removed.unsqueeze(1) if pool == "after" else column != removed.unsqueeze(1))
