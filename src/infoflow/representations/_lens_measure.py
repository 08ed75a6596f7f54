"""The layer at which a model's prediction forms."""

import math
from collections import deque
from collections.abc import Iterator
from typing import ClassVar

import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import Progress, UserError, current_display
from infoflow.models import Model, readout
from infoflow.results import Column, TableSchema, estimate_columns

from ._lens_scores import LensScores, Unigram
from ._lens_states import LensReader, LensStates, Positions
from ._lens_training import LensTraining, fit_tuned_lens
from ._tuned_lens import TunedLens

_CONTROL_POSITIONS = 4096  # for the mean prediction, which is the baseline
_MOST_PASSES = 10  # over the training sentences of a tuned lens

LENS = TableSchema(
    name="lens",
    version=1,
    description="How close the prediction read from each layer is to the model's own, on sentences that the "
    "lens was not "
    "trained on.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="the stack that has the output head"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings, L = the model's output"),
        Column(name="lens", dtype="string", unit="", description="logit (states as they are) or tuned (translated)"),
        Column(
            name="metric",
            dtype="string",
            unit="",
            description="kl: KL(final || layer) in nats; agreement: share of positions with the same likeliest token; "
            "loss: cross-entropy of the token to predict, in nats (absent where none is asked for)",
        ),
        *estimate_columns(
            "nats, or a fraction for agreement",
            "the metric, mean over positions",
            "the mean of the model's predictions instead of the layer's (agreement: its most frequent favourite)",
        ),
        Column(
            name="positions",
            dtype="string",
            unit="",
            description="predicted: where the model is asked for a token (a masked LM: tokens selected as in "
            "training); all: every token of uncorrupted text",
        ),
    ),
)


class Lens(Intervention):
    r"""When does the prediction form? The logit lens and the tuned lens at every layer, against the final prediction.

    $$ \mathrm{KL}(p_L \,\|\, p_l) = \sum_v p_L(v) \ln \frac{p_L(v)}{p_l(v)}, \qquad p_l = \mathrm{softmax}\,r(h_l) $$

    The tuned lens is trained here, on sentences other than the measured ones (by the hash of the sentence); both lenses
    are measured on the same sentences. The baseline is the mean prediction of the model, independent of context. Error
    bars resample the measured sentences, with a fixed tuned lens.

    For an encoder–decoder the decoder is read. At `positions="predicted"`, a masked LM reads text corrupted as in its
    training and is read at the selected tokens, any other model at every token with a next one. `"all"` uses
    uncorrupted text and every token that is not special; a masked LM there mostly repeats its input.

    Args:
        tuned: Also train and measure a tuned lens.
        positions: `"predicted"` or `"all"`.
        steps: Training steps of the tuned lens; fewer on a small corpus, which is read at most ten times.
        tokens: Positions per training step.
        evaluated: Approximate number of positions to measure on.
        held_out: Share of the sentences for measuring.

    Source: logit lens [@nostalgebraist2020], tuned lens [@belrose2023]; their models are causal LMs.
    """

    table: ClassVar[TableSchema] = LENS

    def __init__(
        self,
        tuned: bool = True,
        positions: str = "predicted",
        # Measured on one thread, 6 layers of width 128, a vocabulary of 4,000: 8 s for a causal LM, 12 s for
        # translation, 13 to 16 s for a masked LM, of whose text a seventh is read. On trained models of width 64, four
        # times the tokens per step lower the divergence by 1 to 9 %.
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

    def refusal(self, model: Model) -> str | None:
        if model.task == "encoder":
            return "it has no output head, so it predicts nothing"
        tokenizer = model.tokenizer
        masks = model.task == "masked-lm" and self.positions == "predicted"
        if masks and tokenizer is not None and None in (tokenizer.mask_token_id, tokenizer.pad_token_id):
            return "its tokenizer has no mask or no padding token, so its input cannot be corrupted as in training"
        try:
            readout(model)
        except UserError as error:
            return str(error)
        return None

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
        """Fewer steps if the training sentences would be read too often."""
        most = max(1, math.ceil(_MOST_PASSES * expected / self.tokens))
        if not self.tuned:
            return min(most, math.ceil(_CONTROL_POSITIONS / self.tokens))
        if most < self.steps:
            current_display().note(
                f"The tuned lens is trained in {most} of {self.steps} steps, as a corpus of this size affords "
                f"({_MOST_PASSES} passes over it)."
            )
        return min(most, self.steps)


def _watched(batches: Iterator[LensStates], unigram: Unigram, progress: Progress) -> Iterator[LensStates]:
    """Passes batches through, and adds the first ones to the control."""
    for batch in batches:
        if unigram.positions < _CONTROL_POSITIONS:
            unigram.update(batch)
        yield batch
        progress.advance(1)
