"""Losses of many ablated variants of a model: the layers below an ablation run once, and variants run together."""

# V variant, B sentence

from collections.abc import Collection, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import PaddedBatch
from infoflow.foundation import hash64_array
from infoflow.models import FastLinear, Model, Site, first_block, recorded_blocks, skipped_blocks, tap

from ._head_sets import Block, HeadSet
from ._replacement import AblationMode, DonatedHeads, HeadEdit, HeadMeans, Replacement, zeros
from ._scored import ScoredBatch, SentenceScorer


class VariantLosses:
    """Losses of a model with sets of heads ablated.

    Each batch costs one full pass, and for each set the blocks from its lowest ablated layer up.
    """

    def __init__(self, scorer: SentenceScorer, mode: AblationMode, token_budget: int, reference: np.ndarray) -> None:
        """`reference`: rows for means or donated outputs.

        `token_budget`: padded tokens of all variants that run together.
        """
        self._scorer, self._model, self._budget = scorer, scorer.model, token_budget
        self._mode, self._reference = mode, reference
        self._means = self._head_means() if mode == "mean" else None
        self._choice = DonorChoice(scorer, reference) if mode == "resample" else None

    def losses(
        self, batch: ScoredBatch, variants: Sequence[HeadSet]
    ) -> tuple[Float[Tensor, " sentence"], Float[Tensor, "variant sentence"]]:
        """Summed loss of each sentence: of the intact model, and of each variant; float64 on the CPU."""
        with torch.no_grad(), FastLinear():
            with recorded_blocks(self._model) as recorded:
                clean_B = self._scorer.losses(batch).double().cpu()
            losses_VB = clean_B.repeat(len(variants), 1)
            replacement = self._replacement(batch)
            longest = max(stream.input_ids.shape[1] for stream in batch.padded.streams.values())
            together = max(1, self._budget // (batch.size * longest))
            changed = [{(stack, layer) for stack, _, layer, _ in heads} for heads in variants]
            for (stack, layer), members in by_first_block(self._model, changed).items():
                for start in range(0, len(members), together):
                    part = members[start : start + together]
                    edit = HeadEdit([variants[index] for index in part], replacement)
                    with (
                        skipped_blocks(self._model, recorded, stack, layer, len(part)),
                        tap(self._model, on_heads=edit),
                    ):
                        losses = self._scorer.losses(batch.repeated(len(part)))
                    losses_VB[part] = losses.double().cpu().view(len(part), -1)
        return clean_B, losses_VB

    def _replacement(self, batch: ScoredBatch) -> Replacement:
        if self._mode == "zero":
            return zeros
        return self._means if self._means is not None else self._donors(batch)

    def _head_means(self) -> HeadMeans:
        means = HeadMeans()
        for batch in self._scorer.batches(self._reference, self._budget):
            for site, heads in self._head_outputs(batch).items():
                means.add(site, heads, batch.padded.streams[site.stack].real)
        return means

    def _donors(self, batch: ScoredBatch) -> DonatedHeads:
        assert self._choice is not None
        donors = self._scorer.batch(self._choice.rows(batch.padded))
        positions = {name: stream.real for name, stream in donors.padded.streams.items()}
        return DonatedHeads(self._head_outputs(donors), positions)

    def _head_outputs(self, batch: ScoredBatch) -> dict[Site, Tensor]:
        with torch.no_grad(), tap(self._model, heads=True) as seen:
            self._scorer.losses(batch)
        return {
            Site(stack=stack, kind=kind, layer=layer): heads
            for (stack, kind), layers in seen.heads.items()
            for layer, heads in enumerate(layers)
        }


def by_first_block(model: Model, changed: Sequence[Collection[Block]]) -> dict[Block, list[int]]:
    """Indices of variants by the lowest block that has to run, from the blocks that each changes.

    Variants without changes are left out.
    """
    blocks = ((stack.name, layer.index) for stack in model.anatomy.stacks for layer in stack.layers)
    order = {block: place for place, block in enumerate(blocks)}
    groups: dict[Block, list[int]] = {}
    for index, own in enumerate(changed):
        if own:
            groups.setdefault(first_block(model, *min(own, key=order.__getitem__)), []).append(index)
    return groups


class DonorChoice:
    """Chooses the sentence that donates its heads' outputs to another."""

    def __init__(self, scorer: SentenceScorer, reference: np.ndarray) -> None:
        self._scorer, self._reference = scorer, reference
        self._ids = scorer.reader.corpus.content_ids[reference]
        self._lengths_SN = self._lengths(reference)

    def rows(self, batch: PaddedBatch) -> np.ndarray:
        """For each sentence of a batch, a row of the reference, independent of the batch.

        Chosen by hash among the other sentences that are at least as long in each stack; if there is none, among all
        others.
        """
        donors = []
        for sentence, own_S in zip(batch.sentence_ids.tolist(), self._lengths(batch.rows).T, strict=True):
            other = self._ids != sentence
            fits = other & (self._lengths_SN >= own_S[:, None]).all(axis=0)
            candidates = np.flatnonzero(fits if fits.any() else other if other.any() else ~other)
            keys = hash64_array(("ablation-donor", self._scorer.reader.seed, sentence), self._ids[candidates])
            donors.append(self._reference[candidates[np.argmin(keys)]])
        return np.array(donors)

    def _lengths(self, rows: np.ndarray) -> np.ndarray:
        """(stack, row) tokens in each stack."""
        sentences = [self._scorer.reader.sentence_rows(int(row), "clean", 0) for row in rows]
        return np.array([[len(row.tokens) for row in sentence.values()] for sentence in sentences]).T
