"""A model's predictions on sentences and their losses, also for many ablated variants that run together."""

# B sentence, T token, V variant (the batch repeated), N scored position

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.flow import NO_LABEL, NothingToRead, PaddedBatch, Reader, Stream, cannot_hide
from infoflow.foundation import UserError, current_display, hash64_array
from infoflow.models import (
    FastLinear,
    Model,
    Site,
    first_block,
    forward_logits,
    readout,
    recorded_blocks,
    skipped_blocks,
    tap,
)
from infoflow.representations import no_readout

from ._head_sets import AblationMode, Block, DonatedHeads, HeadEdit, HeadMeans, HeadSet, Replacement, by_site, zeros

LONGEST_SCORED = 4096  # tokens of a text that is run many times


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredBatch:
    """Sentences as input of the model, with the tokens to predict."""

    padded: PaddedBatch
    labels: Tensor  # (B, step) of the predicting stack; NO_LABEL without a target

    @property
    def size(self) -> int:
        return len(self.labels)

    @property
    def counts(self) -> Tensor:
        """(B,) number of tokens to predict in each sentence."""
        return (self.labels != NO_LABEL).sum(dim=1)

    def repeated(self, variants: int) -> "ScoredBatch":
        """The batch repeated `variants` times as a whole."""
        if variants == 1:
            return self
        streams = {name: _repeated(one, variants) for name, one in self.padded.streams.items()}
        return ScoredBatch(padded=replace(self.padded, streams=streams), labels=self.labels.repeat(variants, 1))


class SentenceScorer:
    """Losses of a model per sentence, in nats: of masked, next or target tokens, depending on its task.

    A masked LM reads text that is corrupted as in its training (`PassOptions.corruption`), with noise that depends only
    on (seed, sentence), so that all variants of a model read the same input. A sequence-to-sequence model reads the
    translation shifted right and predicts it.

    Raises:
        UserError: The model makes no predictions.
        NothingToRead: Its decoder has no input.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader, self.model = reader, reader.model
        if reason := no_loss(reader.model):
            raise UserError(f"{reader.model.name} has no loss: {reason}.")
        if self.model.task == "seq2seq" and not reader.has_target:
            raise NothingToRead(f"{self.model.name} has nothing to predict: {reader.no_target}.")
        self._stack = self.model.anatomy.predicts.name
        self._noise = ("head-loss-noise", reader.seed)
        self._read = readout(self.model) if self.model.task == "masked-lm" else None

    def choose(self, sentences: int | None, purpose: str) -> np.ndarray:
        """Rows of `sentences` sentences chosen by the hash of their text (default: all).

        Each `purpose` selects different sentences. If texts are longer than 512 tokens, fewer are chosen, so that the
        total stays at 512 tokens per requested sentence. Texts of more than 4,096 tokens are left out.

        Raises:
            NothingToRead: All texts are longer.
        """
        rows, ids = self.reader.rows, self.reader.corpus.content_ids
        if sentences is None or len(rows) == 0:
            return rows
        rows = rows[self.reader.lengths(rows) <= LONGEST_SCORED]
        left, every = len(self.reader.rows) - len(rows), len(self.reader.rows)
        why = f"have more than {LONGEST_SCORED:,} tokens: lower max_length to cut them."
        if left == every:
            raise NothingToRead(f"it runs {self.model.name} many times, and all texts {why}")
        if left:
            current_display().note(
                f"Measures that run {self.model.name} many times leave out {left:,} of {every:,} texts, which {why}"
            )
        order = np.argsort(hash64_array((purpose, self.reader.seed), ids[rows]), kind="stable")[:sentences]
        tokens = self.reader.lengths(rows[order]).cumsum()
        return rows[np.sort(order[: max(1, int((tokens <= 512 * sentences).sum()))])]

    def batches(self, rows: np.ndarray, token_budget: int) -> Iterator[ScoredBatch]:
        """The sentences in `rows` that have a token to predict, in padded batches by length."""
        rows = rows[[self._predicts(int(row)) for row in rows]]
        for batch in self.reader.even(rows, length_batches(self.reader.lengths(rows), token_budget)):
            yield self.batch(rows[batch])

    def _predicts(self, row: int) -> bool:
        sentence = self.reader.sentence_rows(row, "clean", 0)[self._stack]
        if self.model.task == "masked-lm":
            noisy = self.reader.corrupted(sentence.tokens, *self._noise, int(self.reader.corpus.content_ids[row]))
            return bool((noisy.labels != NO_LABEL).any())
        return bool((sentence.labels != NO_LABEL).any())

    def batch(self, rows: np.ndarray) -> ScoredBatch:
        """The sentences `rows` as one batch."""
        padded = self.reader.padded(rows)
        if self.model.task == "masked-lm":
            padded = self.reader.corrupted_batch(padded, *self._noise)
        padded = padded.to(self.model.device)
        return ScoredBatch(padded=padded, labels=padded.streams[self._stack].labels)

    def losses(self, batch: ScoredBatch) -> Float[Tensor, " sentence"]:
        """Sum of the cross-entropies of each sentence's tokens; differentiable if gradients are enabled."""
        scored = batch.labels != NO_LABEL
        logits_NV = self.logits(batch)
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        losses_N = torch.nn.functional.cross_entropy(logits_NV, batch.labels[scored], reduction="none")
        return losses_N.new_zeros(batch.size).index_add(0, scored.nonzero()[:, 0], losses_N)

    def logits(self, batch: ScoredBatch) -> Float[Tensor, "scored vocabulary"]:
        """Logits at the tokens to predict, sentence by sentence."""
        scored = batch.labels != NO_LABEL
        streams, model = batch.padded.streams, self.model
        source = streams[self.reader.source_stack]
        inputs = {"input_ids": source.input_ids, "attention_mask": source.real.long()}
        if model.task == "seq2seq":
            inputs |= {"decoder_input_ids": streams["decoder"].input_ids, "use_cache": False}
            return forward_logits(model, inputs)[scored]
        if model.task == "causal-lm":
            return forward_logits(model, {**inputs, "use_cache": False})[scored]
        assert self._read is not None
        with tap(model, hidden=True) as seen:
            model.module.base_model(**inputs)
        # The output head reads only the selected tokens (a seventh), as it costs more than a small model's blocks.
        return self._read(seen.hidden[self._stack][-1][scored])


def no_loss(model: Model) -> str | None:
    """Why a model has no loss that its heads could affect, or None."""
    if model.task == "encoder":
        return "it has no language-model head, so it predicts nothing"
    if model.task == "masked-lm" and model.tokenizer is not None:
        return cannot_hide(model) or no_readout(model)
    return None


def _repeated(tokens: Stream, variants: int) -> Stream:
    return Stream(**{one.name: getattr(tokens, one.name).repeat(variants, 1) for one in fields(tokens)})


class VariantLosses:
    """Losses of a model with sets of heads ablated.

    Each batch costs one full pass and, for each set, a pass through the blocks from its lowest ablated layer upward.
    """

    def __init__(self, scorer: SentenceScorer, mode: AblationMode, token_budget: int, reference: np.ndarray) -> None:
        """`reference`: rows of the sentences that give the means or donate outputs.

        `token_budget`: maximum number of padded tokens in all variants that run together.
        """
        self._scorer, self._model, self._budget = scorer, scorer.model, token_budget
        self._mode, self._reference = mode, reference
        self._means = self._head_means() if mode == "mean" else None
        self._choice = DonorChoice(scorer, reference) if mode == "resample" else None

    def losses(
        self, batch: ScoredBatch, variants: Sequence[HeadSet]
    ) -> tuple[Float[Tensor, " sentence"], Float[Tensor, "variant sentence"]]:
        """Summed loss of each sentence for the intact model and for each variant; float64 on the CPU."""
        with torch.no_grad(), FastLinear():
            replacement = self._replacement(batch)
        longest = max(stream.input_ids.shape[1] for stream in batch.padded.streams.values())
        together = max(1, self._budget // (batch.size * longest))
        changed = [{(stack, layer) for stack, _, layer, _ in heads} for heads in variants]

        def edits(part: list[int]) -> dict[str, Any]:
            return {"on_heads": HeadEdit([variants[index] for index in part], replacement)}

        return run_variants(self._scorer, batch, changed, together, edits)

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
        return by_site(seen.heads)


def run_variants(
    scorer: SentenceScorer,
    batch: ScoredBatch,
    changed: Sequence[Collection[Block]],
    together: int,
    edits: Callable[[list[int]], dict[str, Any]],
    *,
    intact: AbstractContextManager | None = None,
    keep_heads: bool = True,
) -> tuple[Float[Tensor, " sentence"], Float[Tensor, "variant sentence"]]:
    """Summed loss of each sentence for the intact model and for each variant; float64 on the CPU.

    `changed` are the blocks that each variant changes, and `edits` are the tap's arguments for some variants, of which
    at most `together` run at once. The intact model runs inside the context manager `intact`.
    """
    model = scorer.model
    with torch.no_grad(), FastLinear():
        with recorded_blocks(model) as recorded, intact or nullcontext():
            intact_B = scorer.losses(batch).double().cpu()
        losses_VB = intact_B.repeat(len(changed), 1)
        for (stack, layer), members in by_first_block(model, changed).items():
            for start in range(0, len(members), together):
                part = members[start : start + together]
                with (
                    skipped_blocks(model, recorded, stack, layer, len(part), keep_heads=keep_heads),
                    tap(model, **edits(part)),
                ):
                    losses = scorer.losses(batch.repeated(len(part)))
                losses_VB[part] = losses.double().cpu().view(len(part), -1)
    return intact_B, losses_VB


def by_first_block(model: Model, changed: Sequence[Collection[Block]]) -> dict[Block, list[int]]:
    """Indices of variants by the lowest block that has to run, given the blocks that each variant changes.

    Variants without changes are left out.
    """
    blocks = ((stack.name, layer.index) for stack in model.anatomy.stacks for layer in stack.layers)
    order = {block: at for at, block in enumerate(blocks)}
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

        A hash chooses among the other sentences that are at least as long in each stack or, if there are none, among
        all others.
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
        """Numbers of tokens, (stack, row)."""
        sentences = [self._scorer.reader.sentence_rows(int(row), "clean", 0) for row in rows]
        return np.array([[len(row.tokens) for row in sentence.values()] for sentence in sentences]).T
