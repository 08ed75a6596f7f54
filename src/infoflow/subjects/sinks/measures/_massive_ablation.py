"""How a model's loss changes when the largest activations of one layer are set to zero or to their mean."""

# B sentence, T token, D width, K changed activation, V variant

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.flow import Intervention, PassOptions, Reader, forward
from infoflow.foundation import UserError, current_display, stream
from infoflow.heads import ScoredBatch, SentenceScorer, no_loss
from infoflow.models import BlockOutputs, Model, first_block, recorded_blocks, skipped_blocks, states_of, with_states
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._tokens import BlockSums

MODES = ("zero", "mean")
MODE = Column("mode", "string", "", "zero: set to 0; mean: set to the mean of the same activations over the corpus")
CHANGED = Column("changed", "int64", "activations", "number of largest activations of each sentence that are changed")
MASSIVE_ABLATION = TableSchema(
    name="massive_ablation",
    version=1,
    description="How the loss changes when the largest activations of a sentence at the output of one layer are set "
    "to zero or to their mean. The sentences are the same with and without the change, so differences are paired.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state, 1: output of the first block"),
        MODE,
        CHANGED,
        *estimate_columns(
            "nats per token",
            "loss with changed activations minus loss without the change",
            "the same for as many random activations of the same sentence",
            "predicted tokens",
        ),
    ),
)


class MassiveAblation(Intervention):
    r"""Change of the loss when the k largest activations of each sentence at one layer are replaced.

    $$ Δ_l = L\big(h^l_{td} \leftarrow m_d, \ (t, d) \in \mathrm{top}_k |h^l|\big) - L $$

    m is 0, or the mean over the corpus of the replaced activations of dimension d. The control replaces k random
    activations of real tokens by 0, or by the mean of their dimension. Blocks below the layer run once.

    Args:
        sentences: Maximum number of sentences, chosen by hash.
        changed: k.

    Source: [@sun2024massive], who replace those of one layer, at most four; the control is ours.
    """

    by_token = True
    table: ClassVar[TableSchema] = MASSIVE_ABLATION

    def __init__(self, sentences: int = 100, changed: int = 4) -> None:
        if sentences < 1 or changed < 1:
            raise UserError(f"sentences and changed must be at least 1. Got {sentences} and {changed}.")
        self.sentences, self.changed = sentences, changed

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        scorer, means, sums = SentenceScorer(reader), _Means(), BlockSums()
        rows = scorer.choose(self.sentences, "massive-ablation")
        budget = max(1, options.tokens_per_batch // (2 * len(MODES)))  # all variants of a batch run together
        with torch.inference_mode():
            for batch in scorer.batches(rows, budget):
                self._add_means(scorer, batch, means)
            label = f"Loss of {scorer.model.name} without massive activations"
            with current_display().progress(label, len(rows), "sentences") as progress:
                for batch in scorer.batches(rows, budget):
                    for place, changes in self._changes(scorer, batch, means).items():
                        sums.add(place, "changes", changes, batch.padded.blocks)
                        sums.add(place, "tokens", batch.counts, batch.padded.blocks)
                    progress.advance(len(batch.padded.sentence_ids))
        found = [row for place, own in sums for row in self._rows(place, own)]
        return pd.DataFrame(found, columns=self.table.column_names)

    def _add_means(self, scorer: SentenceScorer, batch: ScoredBatch, means: "_Means") -> None:
        with recorded_blocks(scorer.model) as recorded:
            forward(scorer.model, batch.padded)
        for place, states in _states(scorer.model, recorded):
            means.add(place, states, batch.padded.streams[place[0]].real, self._chosen(batch, place, states)[0])

    def _chosen(
        self, batch: ScoredBatch, place: tuple[str, int], states: Tensor
    ) -> tuple[Int[Tensor, "sentence changed"], Int[Tensor, "sentence changed"]]:
        """Indices into the states (token × width) of the largest activations and of as many random ones."""
        real = batch.padded.streams[place[0]].real.to(states.device)
        width, tokens = states.shape[2], real.sum(1).tolist()
        sizes = states.float().abs().masked_fill(~real.unsqueeze(2), -1).flatten(1)
        largest = sizes.topk(min(self.changed, min(tokens) * width), dim=1).indices
        random = []
        for sentence, num, mask in zip(batch.padded.sentence_ids.tolist(), tokens, real.cpu(), strict=True):
            drawn = stream("massive-ablation", *place, sentence).integers(num * width, size=largest.shape[1])
            random.append(mask.nonzero()[:, 0][drawn // width] * width + torch.from_numpy(drawn % width))
        return largest, torch.stack(random).to(states.device)

    def _changes(
        self, scorer: SentenceScorer, batch: ScoredBatch, means: "_Means"
    ) -> dict[tuple[str, int], Float[Tensor, "sentence variant"]]:
        """Changes of each sentence's loss at each layer, by mode: for the largest, then for random activations."""
        model, found = scorer.model, {}
        with recorded_blocks(model) as recorded:
            clean = scorer.losses(batch).double().cpu()
        for place, states in _states(model, recorded):
            sets = self._chosen(batch, place, states)
            edits = [(index, means.of(place, index, mode, own)) for own, index in enumerate(sets) for mode in MODES]
            lowest = first_block(model, place[0], place[1] - 1)
            with skipped_blocks(model, recorded, *lowest, len(edits)), _replaced(model, place, edits):
                losses = scorer.losses(batch.repeated(len(edits))).double().cpu()
            found[place] = (losses.view(len(edits), -1) - clean).T
        return found

    def _rows(self, place: tuple[str, int], sums: Mapping[str, np.ndarray]) -> Iterator[dict[str, Any]]:
        for number, mode in enumerate(MODES):
            largest, random = sums["changes"][:, number], sums["changes"][:, len(MODES) + number]
            change = ratio_estimate(largest, sums["tokens"], random.sum() / sums["tokens"].sum())
            yield {"stack": place[0], "layer": place[1], MODE: mode, CHANGED: self.changed, **change}


class _Means:
    """For each layer and dimension, the mean of the largest activations and of all activations."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], Float[Tensor, "set width part"]] = {}

    def add(self, place: tuple[str, int], states: Tensor, real: Tensor, largest: Tensor) -> None:
        width = states.shape[2]
        sums = self._sums.setdefault(place, torch.zeros(2, width, 2, dtype=torch.float64))
        chosen = states.flatten(1).gather(1, largest).double().cpu().flatten()
        at = (largest % width).cpu().flatten()
        sums[0, :, 0].index_add_(0, at, chosen)
        sums[0, :, 1].index_add_(0, at, torch.ones_like(chosen))
        sums[1, :, 0] += states[real.to(states.device)].double().sum(0).cpu()
        sums[1, :, 1] += int(real.sum())

    def of(self, place: tuple[str, int], index: Tensor, mode: str, own: int) -> Tensor:
        """The numbers that replace the activations at `index`; `own`: 0 for the largest, 1 for random ones."""
        if mode == "zero":
            return torch.zeros(index.shape, device=index.device)
        sums = self._sums[place][own]
        mean = sums[:, 0] / sums[:, 1].clamp(min=1)
        return mean.to(index.device, torch.float32)[index % len(mean)]


def _states(model: Model, recorded: BlockOutputs) -> Iterator[tuple[tuple[str, int], Tensor]]:
    """The states of each layer except the embeddings, by stack and number of the state."""
    for (stack, layer), output in recorded.outputs.items():
        yield (stack, layer + 1), model.anatomy.stack(stack).joined(states_of(output))


@contextmanager
def _replaced(model: Model, place: tuple[str, int], edits: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Write numbers at indices into the output of one block; each edit applies to one repetition of the batch."""
    own, layer = model.anatomy.stack(place[0]), place[1] - 1
    before = sum(one.block == own.layers[layer].block for one in own.layers[:layer])  # earlier calls of a shared block
    calls = count()

    def after(block: nn.Module, args: Any, output: Any) -> Any:
        if next(calls) != before:
            return None
        states = own.joined(states_of(output))
        index, numbers = (torch.cat(parts) for parts in zip(*edits, strict=True))
        changed = states.flatten(1).scatter(1, index, numbers.to(states.dtype)).view_as(states)
        return with_states(output, own.parted(changed))

    handle = model.module.get_submodule(own.layers[layer].block).register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()
