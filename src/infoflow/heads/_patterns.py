"""Behaviour of heads on repeated text: previous token, duplicate token, induction, prefix matching, copying."""

# B sequence, H head, Q query, K key

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import Intervention, PassOptions, Reader, forward
from infoflow.foundation import NUM_BLOCKS, UserError, as_tensor, as_written, block_of, current_display
from infoflow.models import AttentionCall, Readout, readout, tap
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._attention_rows import Array, Attention, check_attention, uniform_attention
from ._head_measure import HEAD, HEAD_KEYS, KIND, LAYER, STACK, compact
from ._repeats import Repeats, batches, make_repeats
from ._sentence_attention import copying_scores, logit_directions, output_weight

PATTERNS = ("previous", "duplicate", "induction")
FORMULAS = ("share", "absolute", "valid rows")
_NO_TOKEN = -1

PATTERN = Column(
    "pattern",
    "string",
    "",
    "previous, duplicate, induction; prefix: attention on the tokens after earlier copies, from the second repeat on; "
    "copying: effect of attending to a token on that token's logit",
)
SCORE = Column(
    "score",
    "string",
    "",
    "share (of attention on targets), valid rows (share over rows with a target), absolute (1 − T · mean|A − M|); "
    "for prefix: all or last (earlier copies); for copying: positive (share of tokens whose logit rises) or logit",
)
HEAD_PATTERNS = TableSchema(
    name="head_patterns",
    version=2,
    description="Self-attention on random tokens that are repeated. Copying has rows only for the stack with the "
    "output head, if the model has one.",
    light=True,
    columns=(
        *HEAD_KEYS,
        PATTERN,
        SCORE,
        *estimate_columns(
            "share of attention; logits (copying with score logit)",
            "mean over sequences",
            "the value for uniform attention; for copying, the effect on the logit of another token of the sequence",
            "queries (absolute: sequences; copying: tokens)",
        ),
    ),
)


class PatternScores(Intervention):
    r"""How heads attend when a text of `length` random tokens is repeated `repeats` times.

    $$ \text{share} = \frac{\sum_{ij} A_{ij} M_{ij}}{\sum_{ij} A_{ij}}, \qquad
       \text{absolute} = 1 - T \cdot \mathrm{mean}_{ij} |A_{ij} - M_{ij}| $$

    $A$ are the weights of the T queries that count, and $M$ is 1 where a head of the pattern attends: for `"previous"`
    at j = i − 1, for `"duplicate"` at earlier copies of the query's token ($x_j = x_i$, j < i), for `"induction"` at
    the token after an earlier copy ($x_{j-1} = x_i$, j − 1 < i). Rows without a target count in both denominators, so
    even a perfect head is below 1; `"valid rows"` is the share over rows with a target.

    Tokens are drawn from the corpus's vocabulary, without repetition within a repeat, and placed between the
    tokenizer's special tokens. Only the random tokens count as queries and keys; attention on special tokens stays in
    the denominators. An encoder–decoder reads one such text in each stack.

    Args:
        length: Random tokens in a repeat; fewer if the model has too few positions.
        repeats: Number of repeats, at least 2.
        sequences: Number of texts.
        exclude_special: Exclude special tokens as keys (attention on them is left out of the denominators).
        exclude_current: Exclude the query's own token as well.
        seed: Seeds the random tokens.

    Source: [@olsson2022] for prefix matching and copying; the head detector of [@nanda2022] for pattern scores.
    """

    table: ClassVar[TableSchema] = HEAD_PATTERNS

    def __init__(
        self,
        length: int = 25,
        repeats: int = 4,
        sequences: int = 16,
        exclude_special: bool = False,
        exclude_current: bool = False,
        seed: int = 0,
    ) -> None:
        if length < 2 or repeats < 2 or sequences < 1:
            raise UserError(
                f"length and repeats must be at least 2, sequences at least 1. Got {length}, {repeats} and {sequences}."
            )
        self.length, self.repeats, self.sequences = length, repeats, sequences
        self.exclude_special, self.exclude_current, self.seed = exclude_special, exclude_current, seed

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        texts = self._texts(reader)
        sums = _Sums()
        if texts:
            size = max(1, options.tokens_per_batch // max(text.ids.shape[1] for text in texts.values()))
            copying = self._readout(reader)
            for batch in batches(texts, size):
                self._run_batch(reader, texts, batch.to(reader.model.device), copying, sums)
        return pd.DataFrame(sums.rows(), columns=self.table.column_names)

    def of(self, attention: Attention, valid: Array, tokens: Array) -> pd.DataFrame:
        """Pattern scores computed from arrays, without a model, pooled over sequences.

        Args:
            attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
            valid: (batch, token) bool; False: padding or a special token.
            tokens: (batch, token) ids.

        Returns:
            Columns layer, head, pattern, score, value.

        Raises:
            UserError: A shape is wrong.
        """
        weights, mask = check_attention(attention, valid)
        ids = as_tensor(tokens)
        if ids.shape != mask.shape:
            raise UserError(
                f"tokens must have the shape of valid, {as_written(list(mask.shape))}. "
                f"Got {as_written(list(ids.shape))}."
            )
        targets = _Targets(ids.masked_fill(~mask, _NO_TOKEN), mask)
        rows = [
            {LAYER: layer, HEAD: head, PATTERN: pattern, SCORE: score, "value": value}
            for layer, of_layer in enumerate(weights)
            for (pattern, score), (above, below) in self._scores(targets, of_layer)
            for head, value in enumerate((above.sum(0) / below.sum(0)).tolist())
        ]
        return pd.DataFrame(rows)

    def _texts(self, reader: Reader) -> dict[str, Repeats]:
        made = {
            stack: make_repeats(reader, stack, self.sequences, self.length, self.repeats, self.seed)
            for stack in reader.frequencies
        }
        if missing := [stack for stack, text in made.items() if text is None]:
            current_display().note(
                f"{self.repeats} repeats of two tokens exceed the length limit of {reader.model.name}'s {missing[0]}: "
                "patterns on repeats are left out."
            )
            return {}
        return {stack: text for stack, text in made.items() if text is not None}

    def _readout(self, reader: Reader) -> Readout | None:
        """The model's readout; None if it has no output head, or its logits are not a function of the last state."""
        stack = reader.model.anatomy.predicts.name
        if reader.model.task == "encoder" or stack not in reader.frequencies:
            return None
        try:
            if reason := reader.model.anatomy.several_streams():
                raise UserError(f"{reason}.")
            return readout(reader.model)
        except UserError as error:
            current_display().note(f"Copying is left out: {error}")
            return None

    def _run_batch(
        self, reader: Reader, texts: dict[str, Repeats], batch: Any, copying: Readout | None, sums: "_Sums"
    ) -> None:
        values: dict[tuple[str, int], Tensor] = {}

        def keep(call: AttentionCall) -> None:
            if call.kind == "self" and copying is not None and call.stack == copying.stack.name:
                values[call.stack, call.layer] = call.value[:, :, texts[call.stack].first]

        model, blocks = reader.model, block_of(batch.sentence_ids)
        with torch.inference_mode(), tap(model, hidden=True, attention=True, on_attention=keep) as seen:
            forward(model, batch)
        for stack, text in texts.items():
            ids = batch.streams[stack].input_ids
            content = text.content.to(ids.device).expand(ids.shape)
            targets = _Targets(ids.masked_fill(~content, _NO_TOKEN), content, text.length)
            masks = seen.visible[stack, "self"]
            of_mask = {id(mask): dict(self._scores(targets, uniform_attention(mask))) for mask in masks}
            for layer, (weights, mask) in enumerate(zip(seen.attention[stack, "self"], masks, strict=True)):
                for (pattern, score), ratio in self._scores(targets, weights.float()):
                    sums.add((stack, layer, pattern, score), ratio, of_mask[id(mask)][pattern, score], blocks)
        if copying is not None:
            self._copy(reader, texts[copying.stack.name], batch, seen.hidden, values, copying, sums, blocks)

    def _scores(self, targets: "_Targets", weights: Tensor) -> Iterator[tuple[tuple[str, str], tuple[Tensor, Tensor]]]:
        kept = weights.masked_fill(~targets.keys(self).unsqueeze(1), 0)
        for (pattern, score), (mask, rows, formula) in targets.questions.items():
            yield (pattern, score), _pattern_sums(kept, mask, rows, formula)

    def _copy(
        self,
        reader: Reader,
        text: Repeats,
        batch: Any,
        hidden: dict[str, list[Tensor]],
        values: dict[tuple[str, int], Tensor],
        copying: Readout,
        sums: "_Sums",
        blocks: np.ndarray,
    ) -> None:
        stack = copying.stack.name
        tokens = batch.streams[stack].input_ids[:, text.first]
        states = hidden[stack][-1][:, text.first].float()
        pairs = []
        for wanted in (tokens, tokens.roll(1, 1)):  # the token itself, and another one of the text
            directions = logit_directions(copying, states.flatten(0, 1), wanted.flatten())
            pairs.append(directions.unflatten(0, tokens.shape))
        for layer in copying.stack.layers:
            if "self" not in layer.attentions:
                continue
            output = output_weight(reader.model, layer.attentions["self"])
            own, other = (copying_scores(values[stack, layer.index].float(), output, g) for g in pairs)
            for score, read in (("positive", lambda x: (x > 0).double()), ("logit", lambda x: x.double())):
                count = torch.full(own.shape[:2], own.shape[2], dtype=torch.float64)
                ratio, chance = (read(own).sum(2), count), (read(other).sum(2), count)
                sums.add((stack, layer.index, "copying", score), ratio, chance, blocks)


class _Targets:
    """The masks, rows and formulas of all scores; tokens of −1 are neither queries nor keys."""

    def __init__(
        self, tokens: Int[Tensor, "sequence token"], content: Bool[Tensor, "sequence token"], length: int | None = None
    ) -> None:
        masks = {pattern: pattern_mask(tokens, pattern) for pattern in PATTERNS}
        self.questions = {(pattern, f): (mask, content, f) for pattern, mask in masks.items() for f in FORMULAS}
        if length is not None:
            later, earlier = content & (content.cumsum(1) > length), masks["induction"]
            self.questions["prefix", "all"] = (earlier, later, "share")
            last = earlier & (earlier.flip(2).cumsum(2).flip(2) == 1)
            self.questions["prefix", "last"] = (last, later, "share")
        self._content = content

    def keys(self, settings: PatternScores) -> Bool[Tensor, "sequence query key"]:
        """Keys that are not excluded."""
        num = self._content.shape[1]
        kept = (self._content | (not settings.exclude_special)).unsqueeze(1).expand(-1, num, -1)
        return kept & ~torch.eye(num, dtype=torch.bool, device=kept.device) if settings.exclude_current else kept


class _Sums:
    """Numerators and denominators of heads and control, (64, H) each, by stack, layer, pattern and score."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int, str, str], list[np.ndarray]] = {}

    def add(
        self, key: tuple[str, int, str, str], ratio: tuple[Tensor, Tensor], chance: tuple[Tensor, Tensor], blocks: Any
    ) -> None:
        tables = [np.zeros((NUM_BLOCKS, part.shape[1])) for part in (*ratio, *chance)]
        for table, part in zip(tables, (*ratio, *chance), strict=True):
            np.add.at(table, blocks, part.double().cpu().numpy())
        held = self._held.get(key)
        self._held[key] = tables if held is None else [a + b for a, b in zip(held, tables, strict=True)]

    def rows(self) -> Iterator[dict[str, Any]]:
        for (stack, layer, pattern, score), (above, below, chance, among) in self._held.items():
            with np.errstate(invalid="ignore", divide="ignore"):
                baselines = np.broadcast_to(chance.sum(0) / among.sum(0), above.shape[1:])
            for head, baseline in enumerate(baselines):
                where = {STACK: stack, KIND: "self", LAYER: layer, HEAD: head}
                scale = "any" if score in ("logit", "absolute") else "share"
                estimate = compact(ratio_estimate(above[:, head], below[:, head], float(baseline), scale))
                estimate["count"] = round(below[:, head].sum())
                yield {**where, PATTERN: pattern, SCORE: score, **estimate}


def pattern_mask(tokens: Int[Tensor, "sequence token"], pattern: str) -> Bool[Tensor, "sequence query key"]:
    """The mask of a pattern's targets, see `PatternScores`; tokens of −1 are neither queries nor keys.

    Source: the code of the head detector of [@nanda2022].
    """
    if pattern not in PATTERNS:
        raise UserError(f"pattern must be one of {', '.join(PATTERNS)}. Got {pattern}.")
    num = tokens.shape[1]
    part = tokens != _NO_TOKEN
    both = part.unsqueeze(2) & part.unsqueeze(1)
    if pattern == "previous":
        return both & torch.eye(num, dtype=torch.bool, device=tokens.device).roll(-1, 1).tril(-1)
    copies = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).tril(-1) & both
    if pattern == "duplicate":
        return copies
    return torch.nn.functional.pad(copies, (1, 0))[:, :, :-1] & both


def _pattern_sums(
    attention: Float[Tensor, "sequence head query key"],
    mask: Bool[Tensor, "sequence query key"],
    rows: Bool[Tensor, "sequence query"],
    formula: str,
) -> tuple[Float[Tensor, "sequence head"], Float[Tensor, "sequence head"]]:
    """Numerator and denominator of a pattern's score, for each sequence; `rows` are the queries that count."""
    rows = rows & mask.any(2) if formula == "valid rows" else rows
    # Filled, not multiplied: rows of padding may hold NaN.
    kept = attention.masked_fill(~rows[:, None, :, None], 0).double()
    targets = (mask & rows.unsqueeze(2)).unsqueeze(1).double()
    if formula == "absolute":
        distance = (kept - targets).abs().sum((2, 3)) / rows.sum(1, keepdim=True).clamp(min=1)
        return 1 - distance, torch.ones_like(distance)
    return (kept * targets).sum((2, 3)), kept.sum((2, 3))
