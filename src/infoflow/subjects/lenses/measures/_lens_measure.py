"""The layer at which a model's prediction forms."""

# R row (a token occurrence), V vocabulary

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import NO_LABEL, Intervention, PassOptions, Reader, cannot_hide
from infoflow.foundation import NUM_BLOCKS, Progress, UserError, current_display
from infoflow.models import Model, Readout, argmax, readout
from infoflow.representations import LensTraining, TunedLens, fit_tuned_lens, no_readout, row_chunks
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._lens_states import LensReader, LensStates, Positions

_CONTROL_POSITIONS = 4096  # number of positions for the mean prediction, which is the baseline
_MOST_PASSES = 10  # over the training sentences of a tuned lens

LENS = TableSchema(
    name="lens",
    description="How close the prediction read from each layer is to the model's own, on sentences that the "
    "lens was not "
    "trained on.",
    columns=(
        Column("stack", "string", "", "the stack that has the output head"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings, L = the model's output"),
        Column("lens", "string", "", "logit (states as they are) or tuned (translated)"),
        Column(
            "metric",
            "string",
            "",
            "kl: KL(final || layer) in nats; agreement: share of positions with the same most likely "
            "token; loss: cross-entropy of the token to predict, in nats (absent where there is none)",
        ),
        *estimate_columns(
            "nats, or a fraction for agreement",
            "the metric, mean over positions",
            "the metric for the model's mean prediction (agreement: its most frequent top token)",
        ),
        Column(
            "positions",
            "string",
            "",
            "predicted: where the model has to predict a token (a masked LM: tokens selected as in "
            "training); all: every token of uncorrupted text",
        ),
    ),
)
METRICS = ("kl", "agreement", "loss")


class Unigram:
    """A model's context-free prediction: the mean of its predictions, and the most frequent top token."""

    def __init__(self, read: Readout) -> None:
        self._read, self.positions = read, 0
        self._total = torch.zeros(read.vocabulary_size, dtype=torch.float64)
        self._wins = torch.zeros(read.vocabulary_size, dtype=torch.int64)

    def update(self, batch: LensStates) -> None:
        """Add some positions."""
        with torch.no_grad():
            for chunk in chunks(batch, self._read):
                shares = self._read(chunk.states[-1]).float().softmax(dim=-1)
                self._total += shares.sum(dim=0, dtype=torch.float64).cpu()
                self._wins += argmax(shares).bincount(minlength=len(self._wins)).cpu()
        self.positions += len(batch)

    @property
    def log_shares(self) -> Float[Tensor, " vocabulary"]:
        """Natural logarithms of the mean prediction."""
        return (self._total / self._total.sum()).log().float()

    @property
    def favourite(self) -> int:
        """The token that is the top prediction most often; the lower id wins ties."""
        return int(self._wins.argmax())


class LensScores:
    """Sums per bootstrap block of every metric, for each lens and layer and for the control."""

    def __init__(self, lenses: dict[str, TunedLens | None], unigram: Unigram, read: Readout) -> None:
        self._lenses, self._read = lenses, read
        self._unigram, self._favourite = unigram.log_shares, unigram.favourite
        self._num_states = len(read.stack.layers) + 1
        shape = (NUM_BLOCKS, len(METRICS))
        self._sums = {name: np.zeros((self._num_states, *shape)) for name in lenses}
        self._control, self._counts = np.zeros(shape), np.zeros(shape)

    def update(self, batch: LensStates) -> None:
        """Add some positions."""
        with torch.no_grad():
            for chunk in chunks(batch, self._read):
                self._add(chunk)

    def _add(self, chunk: LensStates) -> None:
        final = self._read(chunk.states[-1]).float().log_softmax(dim=-1)
        target = _Target(log_shares=final, shares=final.exp(), top=argmax(final), labels=chunk.labels)
        blocks = chunk.blocks.cpu().numpy()
        self._counts += _per_block(target.counts(), blocks)
        control = self._unigram.to(final).expand_as(final)
        self._control += _per_block(target.scores(control, self._favourite), blocks)
        top = _per_block(target.scores(final), blocks)
        for name, lens in self._lenses.items():
            for layer in range(self._num_states - 1):
                states = chunk.states[layer] if lens is None else lens(chunk.states[layer], layer)
                scores = target.scores(self._read(states).float().log_softmax(dim=-1))
                self._sums[name][layer] += _per_block(scores, blocks)
            self._sums[name][-1] += top

    def rows(self) -> Iterator[dict]:
        """A row per lens, metric and layer, without metrics undefined at all positions."""
        for name, sums in self._sums.items():
            for index, metric in enumerate(METRICS):
                counts = self._counts[:, index]
                if not counts.any():
                    continue
                baseline = self._control[:, index].sum() / counts.sum()
                for layer in range(self._num_states):
                    scale = "share" if metric == "agreement" else "positive"
                    estimate = ratio_estimate(sums[layer, :, index], counts, float(baseline), scale)
                    yield {"layer": layer, "lens": name, "metric": metric, **estimate}


class Lens(Intervention):
    r"""Where the prediction forms: how close the logit lens and tuned lens of each layer are to the final prediction.

    $$ \mathrm{KL}(p_L \,\|\, p_l) = \sum_v p_L(v) \ln \frac{p_L(v)}{p_l(v)}, \qquad p_l = \mathrm{softmax}\,r(h_l) $$

    This measure trains the tuned lens, on sentences that it does not measure (chosen by hash); both lenses are
    measured on the same sentences. The baseline is the mean prediction of the model, independent of context. Error bars
    resample the measured sentences, with a fixed tuned lens.

    For an encoder–decoder the lens reads the decoder. With `positions="predicted"`, a masked LM reads text corrupted as
    in its training, and the lens reads the selected tokens; for other models it reads every token that has a next one.
    `"all"` uses uncorrupted text and every token that is not special; there a masked LM mostly repeats its input.

    Args:
        tuned: Also train and measure a tuned lens.
        positions: `"predicted"` or `"all"`.
        steps: Training steps of the tuned lens; fewer for a small corpus, which is read at most ten times.
        tokens: Positions per training step.
        evaluated: Approximate number of positions to measure on.
        held_out: Share of the sentences for measuring.

    Source: logit lens [@nostalgebraist2020], tuned lens [@belrose2023]; their models are causal LMs.
    """

    table: ClassVar[TableSchema] = LENS
    by_token = True
    by_default = True

    def __init__(
        self,
        tuned: bool = True,
        positions: str = "predicted",
        # Measured on one thread, 6 layers of width 128, a vocabulary of 4,000: 8 s for a causal LM, 12 s for
        # translation, 13 to 16 s for a masked LM, which predicts a seventh of its text. On trained models of width 64,
        # four times the tokens per step lower the divergence by 1 to 9 %.
        steps: int = 200,
        tokens: int = 64,
        evaluated: int = 3000,
        held_out: float = 0.3,
    ) -> None:
        LensTraining(steps=steps, tokens=tokens)
        if positions not in ("predicted", "all"):
            raise UserError(f'positions must be "predicted" or "all". Got {positions}.')
        if not 0 < held_out < 1:
            raise UserError(f"held_out is a share of the sentences, above 0 and below 1. Got {held_out}.")
        if evaluated < 1:
            raise UserError(f"evaluated must be at least 1. Got {evaluated}.")
        self.tuned, self.steps, self.tokens, self.evaluated, self.held_out = tuned, steps, tokens, evaluated, held_out
        self.positions: Positions = positions

    @classmethod
    def planned(cls, plan: Any) -> "Lens":
        return cls(steps=plan.lens_steps, tokens=plan.lens_tokens)

    def refusal(self, model: Model) -> str | None:
        if model.task == "encoder":
            return "it has no language-model head, so it predicts nothing"
        masks = model.task == "masked-lm" and self.positions == "predicted"
        if masks and (refusal := cannot_hide(model)):
            return refusal
        return no_readout(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        stack = reader.model.anatomy.predicts.name
        try:
            if stack != reader.source_stack and not reader.has_target:
                raise UserError(reader.no_target)
            rows = list(self._scores(reader, options).rows())
        except UserError as error:
            current_display().note(f"{self.name} of {reader.model.name} is skipped: {error}")
            return pd.DataFrame(columns=self.table.column_names)
        return pd.DataFrame([{"stack": stack, "positions": self.positions, **row} for row in rows])

    def _scores(self, reader: Reader, options: PassOptions) -> LensScores:
        read = readout(reader.model)
        states = LensReader(reader, self.positions, options.tokens_per_batch)
        training, evaluation = states.halves(self.held_out)
        unigram, steps = Unigram(read), self._affordable_steps(states.expected(training))
        lenses: dict[str, TunedLens | None] = {"logit": None}
        with current_display().progress(f"Lens of {reader.model.name}", steps, "steps") as progress:
            batches = _watched(states.shuffled(training, self.tokens, steps * self.tokens), unigram, progress)
            if self.tuned:
                settings = LensTraining(steps=steps, tokens=self.tokens)
                lenses["tuned"] = fit_tuned_lens(read, (batch.states for batch in batches), settings)
            else:
                deque(batches, maxlen=0)
        scores = LensScores(lenses, unigram, read)
        for batch in states.read(states.sentences(evaluation, self.evaluated)):
            scores.update(batch)
        return scores

    def _affordable_steps(self, expected: float) -> int:
        """The number of steps, reduced if the training sentences would be read too often."""
        most = max(1, math.ceil(_MOST_PASSES * expected / self.tokens))
        if not self.tuned:
            return min(most, math.ceil(_CONTROL_POSITIONS / self.tokens))
        if most < self.steps:
            current_display().note(
                f"The tuned lens is trained for {most} of {self.steps} steps: a corpus of this size allows no more "
                f"({_MOST_PASSES} passes over it)."
            )
        return min(most, self.steps)


def _watched(batches: Iterator[LensStates], unigram: Unigram, progress: Progress) -> Iterator[LensStates]:
    """Yield the batches unchanged, and add the first ones to the control."""
    for batch in batches:
        if unigram.positions < _CONTROL_POSITIONS:
            unigram.update(batch)
        yield batch
        progress.advance(1)


def chunks(batch: LensStates, read: Readout) -> Iterator[LensStates]:
    """The batch in pieces whose logits are small."""
    start = 0
    for states in row_chunks(batch.states, read):
        yield batch.take(slice(start, start + states.shape[1]))
        start += states.shape[1]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Target:
    """The model's own prediction at some positions, and the tokens to predict there."""

    log_shares: Float[Tensor, "row vocabulary"]
    shares: Float[Tensor, "row vocabulary"]
    top: Tensor  # the most likely token
    labels: Tensor

    def counts(self) -> Tensor:
        """(R, 3): which metrics are defined at a position."""
        labelled = (self.labels != NO_LABEL).double()
        return torch.stack([torch.ones_like(labelled), torch.ones_like(labelled), labelled], dim=1)

    def scores(self, log_shares: Float[Tensor, "row vocabulary"], guess: int | None = None) -> Tensor:
        """(R, 3): KL(final || these), whether the top tokens agree, and minus the log-probability of the label."""
        divergence = torch.linalg.vecdot(self.shares, self.log_shares - log_shares)
        agreement = self.top == (argmax(log_shares) if guess is None else guess)
        labelled = self.labels != NO_LABEL
        label_log_shares = log_shares.gather(1, self.labels.clamp(min=0)[:, None])[:, 0]
        loss = torch.where(labelled, -label_log_shares, 0.0)
        return torch.stack([divergence.double(), agreement.double(), loss.double()], dim=1)


def _per_block(values: Tensor, blocks: np.ndarray) -> np.ndarray:
    """(64, 3) sums of (R, 3) values."""
    sums = np.zeros((NUM_BLOCKS, values.shape[1]))
    np.add.at(sums, blocks, values.cpu().numpy())
    return sums
