"""What a causal model gains from its context: late tokens against early ones, and repeated texts."""

# B sequence, T token

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, replicate_weights
from infoflow.heads import make_repeats, no_loss
from infoflow.models import Model, forward_logits
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate

from ._token_losses import SENTENCES, TokenLosses, checked_sentences, token_losses

_TEXTS = 30  # minimum number of texts for a gain between positions
_LONGEST_COPY, _SHORTEST_COPY = 25, 4
_LONG_TEXT = 0.9  # quantile of text lengths: two copies together are this long
_NO_PLACE = -1

IN_CONTEXT_LEARNING = TableSchema(
    name="in_context_learning",
    description="How much easier tokens become for a model through the context it has read.",
    light=True,
    columns=(
        Column(
            "measure",
            "string",
            "",
            "gain: mean loss around token i minus that around token j of the same texts; repeat_gain: mean "
            "loss in the first copy of random tokens minus that in the second, without each copy's first token",
        ),
        Column("i", "int64", "tokens", "the early position, from 1; -1 for repeat_gain"),
        Column("j", "int64", "tokens", "the late position; -1 for repeat_gain"),
        Column("length", "int64", "tokens", "length of the texts, or of one copy (repeat_gain)"),
        *estimate_columns(
            "nats per token",
            "the gain: above 0 where the preceding context helps",
            "gain: the same difference of the tokens' unigram loss, which ignores context; repeat_gain: with other "
            "random tokens in place of the second copy",
            "texts",
        ),
    ),
)
_LONG = 512
_SHORT = 64


class InContextLearning(Intervention):
    r"""`in_context_gain` of real texts, and the gain from repetition of random ones.

    $$ g(i, j) = L_i - L_j, \qquad g_{rep} = L_{first\ copy} - L_{second\ copy} $$

    The gain between positions needs 30 texts of 64 tokens (`context_positions`); only texts that reach position j
    count. Without such texts it is left out with a note. Random tokens are sampled from the tokens of the corpus, each
    once per copy and the same at every checkpoint; two copies are about as long as the longer sentences of the corpus,
    so the model has seen such positions. A decoder with a source has only the gain between positions.

    Args:
        sentences: At most this many, chosen by a hash of their text.
        sequences: Number of repeated random texts; 0: none.
        length: Tokens of a copy, at least 2; None: from the corpus's sentence lengths, 4 to 25.

    Source: [@olsson2022context]; their score is −g, and their models are causal LMs.
    """

    table: ClassVar[TableSchema] = IN_CONTEXT_LEARNING

    def __init__(self, sentences: int | None = SENTENCES, sequences: int = 128, length: int | None = None) -> None:
        if sequences < 0 or sequences == 1 or (length is not None and length < 2):
            raise UserError(
                "Repeated texts need at least 2 sequences (0: none) and copies of at least 2 tokens. "
                f"Got {sequences} sequences, copies of {length}."
            )
        self.sentences, self.sequences, self.length = checked_sentences(sentences), sequences, length

    def refusal(self, model: Model) -> str | None:
        if model.task == "masked-lm":
            return "it also reads the tokens after each token, so no token has more context than another"
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        rows = self._gain(reader, options)
        if self.sequences and reader.model.task == "causal-lm":
            rows += self._repeat_gain(reader, options)
        if not rows:
            raise NothingToRead(f"{reader.corpus.name} has no texts of 64 tokens, and nothing was repeated")
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _gain(self, reader: Reader, options: PassOptions) -> list[dict[str, Any]]:
        found = token_losses(reader, options, self.sentences)
        ends = np.sort(found.lengths[found.positions == found.lengths])[::-1]
        length = int(ends[_TEXTS - 1]) if len(ends) >= _TEXTS else 0
        places = context_positions(length)
        if places is None:
            current_display().note(
                f"The in-context gain of {reader.model.name} is not testable: {reader.corpus.name} has fewer than "
                f"{_TEXTS} texts of 64 tokens."
            )
            return []
        i, j = places
        values, baseline = (place_gains(found, weights, i, j) for weights in (found.losses, found.unigram))
        numbers = estimate(values[0], values[1:], baseline[0], int((ends >= j).sum()))
        return [{"measure": "gain", "i": i, "j": j, "length": length, **numbers}]

    def _repeat_gain(self, reader: Reader, options: PassOptions) -> list[dict[str, Any]]:
        texts = make_repeats(reader, reader.source_stack, self.sequences, self._copy(reader), 2, reader.seed)
        if texts is None or texts.length < 2:
            current_display().note(
                f"A repeated text exceeds the length limit of {reader.model.name}: repeat_gain is left out."
            )
            return []
        begin, length = int(texts.first[0]), texts.length
        second = slice(begin + length, begin + 2 * length)
        other = texts.ids.clone()
        other[:, second] = texts.ids.roll(1, dims=0)[:, second]  # tokens of the next text, which are new to this one
        gains, control = (
            copy_gains(reader.model, ids, begin, length, options.tokens_per_batch) for ids in (texts.ids, other)
        )
        blocks = block_of(np.arange(len(gains)))
        counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(np.float64)
        numbers = ratio_estimate(np.bincount(blocks, gains, NUM_BLOCKS), counts, float(control.mean()))
        return [{"measure": "repeat_gain", "i": _NO_PLACE, "j": _NO_PLACE, "length": length, **numbers}]

    def _copy(self, reader: Reader) -> int:
        if self.length is not None:
            return self.length
        lengths = reader.lengths(reader.rows)
        long = int(np.quantile(lengths, _LONG_TEXT, method="lower"))
        return min(max(long // 2, _SHORTEST_COPY), _LONGEST_COPY)


def place_gains(found: TokenLosses, losses: Float[np.ndarray, " N"], i: int, j: int) -> Float[np.ndarray, " row"]:
    """The gain between positions i and j of texts that reach j: the estimate, then its bootstrap replicates."""
    long = found.lengths >= j
    longest = int(found.positions[long].max())
    place = found.blocks[long] * longest + found.positions[long] - 1
    sums, counts = (
        np.bincount(place, weights, NUM_BLOCKS * longest).reshape(NUM_BLOCKS, longest)
        for weights in (losses[long], None)
    )
    weights_RK = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
    with np.errstate(invalid="ignore"):
        means = (weights_RK @ sums) / (weights_RK @ counts)
    return np.array([in_context_gain(row, i, j) for row in means])


def copy_gains(
    model: Model, ids: torch.Tensor, begin: int, length: int, token_budget: int
) -> Float[np.ndarray, " sequence"]:
    """Mean loss of the copy that begins at `begin` minus that of the next copy, each without its first token."""
    parts = []
    for batch in ids.split(max(1, token_budget // ids.shape[1])):
        batch = batch.to(model.device)
        inputs = {"input_ids": batch, "attention_mask": torch.ones_like(batch), "use_cache": False}
        with torch.inference_mode():
            logits = forward_logits(model, inputs)[:, begin : begin + 2 * length - 1]
        targets = batch[:, begin + 1 : begin + 2 * length]
        losses_BT = torch.nn.functional.cross_entropy(logits.mT.float(), targets, reduction="none").double()
        parts.append(losses_BT[:, : length - 1].mean(dim=1) - losses_BT[:, length:].mean(dim=1))
    return torch.cat(parts).cpu().numpy()


def in_context_gain(loss_by_position: ArrayLike, i: int, j: int, window: int = 5) -> float:
    r"""\(g(i, j) = L_i - L_j\), nats: positive if later tokens (counted from 1) are easier; L_p is a mean over p ±
    `window`.

    Source: [@olsson2022context], whose score is −g.
    """
    losses = np.asarray(loss_by_position, dtype=np.float64)
    if not 1 <= i < j <= len(losses) or window < 0:
        raise UserError(
            f"An in-context gain needs an early and a late token among the {len(losses)} of a text, and a window from "
            f"0. Got tokens {i} and {j}, window {window}."
        )
    early, late = (np.nanmean(losses[max(place - 1 - window, 0) : place + window]) for place in (i, j))
    return float(early - late)


def context_positions(length: int) -> tuple[int, int] | None:
    """Which tokens to compare in texts of `length` tokens: 50 and 500; in shorter texts those at 10 % and 98 %.

    None below 64 tokens. 50 and 500 are the paper's choice; the others are ours.
    """
    if length < _SHORT:
        return None
    if length >= _LONG:
        return 50, 500
    return (2 * length + 10) // 20, (2 * 98 * length + 100) // 200
