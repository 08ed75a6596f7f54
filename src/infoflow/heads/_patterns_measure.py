"""Previous-token, duplicate-token, induction and copying heads, on random tokens repeated."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.flow import Intervention, PassOptions, Reader, forward
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display
from infoflow.models import AttentionCall, Readout, readout, tap
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._copying import copying_scores, logit_directions
from ._head_measure import HEAD_KEYS, compact
from ._patterns import FORMULAS, PATTERNS, last_only, pattern_mask, pattern_sums
from ._repeats import Repeats, batches, make_repeats
from ._value_weighted import output_weight

_SCHEMA = TableSchema(
    name="head_patterns",
    version=1,
    description="Self-attention on random tokens that are repeated. Copying has rows for the stack that has the output "
    "head, where the model has one.",
    columns=(
        *HEAD_KEYS,
        Column(
            name="pattern",
            dtype="string",
            unit="",
            description="previous, duplicate, induction; prefix: attention on what followed earlier copies, from the "
            "second repeat on; copying: effect of attending to a token on its own logit",
        ),
        Column(
            name="score",
            dtype="string",
            unit="",
            description="share (of attention on targets), valid rows (the same over rows with a target), absolute "
            "(1 − T · mean|A − M|); for prefix all or last earlier copies; for copying positive (share of tokens whose "
            "logit rises) or logit",
        ),
        *estimate_columns(
            "share of attention; logits for copying by logit",
            "mean over sequences",
            "uniform attention over the same keys; for copying the effect on another token of the sequence",
            "queries (absolute: sequences; copying: tokens)",
        ),
    ),
)


class PatternScores(Intervention):
    """What heads do when text repeats itself: `length` random tokens, `repeats` times.

    Tokens are drawn from the corpus's vocabulary, none twice within a repeat, and stand between the special tokens that
    the tokenizer adds; patterns look at random tokens only, as query and as key, and what falls on special tokens stays
    in the denominators. An encoder–decoder reads one such text in each stack.

    Args:
        length: Random tokens in a repeat; fewer where the model has too few positions.
        repeats: How often they come, at least 2.
        sequences: Number of texts.
        exclude_special: Special tokens are no keys (attention on them leaves the denominators).
        exclude_current: Neither is the query's own token.
        seed: Of the random tokens.

    Source: [@olsson2022] for prefix matching and copying; the head detector of [@nanda2022] for pattern scores.
    """

    table: ClassVar[TableSchema] = _SCHEMA

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

    def _texts(self, reader: Reader) -> dict[str, Repeats]:
        made = {
            stack: make_repeats(reader, stack, self.sequences, self.length, self.repeats, self.seed)
            for stack in reader.frequencies
        }
        if missing := [stack for stack, text in made.items() if text is None]:
            current_display().note(
                f"{reader.model.name} has no room for {self.repeats} repeats of two tokens in its {missing[0]}: "
                "patterns on repeats are left out."
            )
            return {}
        return {stack: text for stack, text in made.items() if text is not None}

    def _readout(self, reader: Reader) -> Readout | None:
        """None where the model has no output head, or its logits are no function of the last state."""
        stack = reader.model.anatomy.predicts.name
        if reader.model.task == "encoder" or stack not in reader.frequencies:
            return None
        try:
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
            part = Repeats(ids=ids, content=text.content.to(ids.device), length=text.length)
            targets = _Targets(part, causal=model.anatomy.stack(stack).causal)
            for layer, weights in enumerate(seen.attention[stack, "self"]):
                for (pattern, score), ratio in self._scores(targets, weights.float()):
                    sums.add((stack, layer, pattern, score), ratio, targets.chance(pattern, score, self), blocks)
        if copying is not None:
            self._copy(reader, texts[copying.stack.name], batch, seen.hidden, values, copying, sums, blocks)

    def _scores(self, targets: "_Targets", weights: Tensor) -> Iterator[tuple[tuple[str, str], tuple[Tensor, Tensor]]]:
        kept = weights.masked_fill(~targets.keys(self), 0)
        for (pattern, score), (mask, rows, formula) in targets.questions.items():
            yield (pattern, score), pattern_sums(kept, mask, rows, formula)

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
            output = output_weight(reader.model, layer.attentions["self"])
            own, other = (copying_scores(values[stack, layer.index].float(), output, g) for g in pairs)
            for score, read in (("positive", lambda x: (x > 0).double()), ("logit", lambda x: x.double())):
                count = torch.full(own.shape[:2], own.shape[2], dtype=torch.float64)
                ratio, chance = (read(own).sum(2), count), (read(other).sum(2), count)
                sums.add((stack, layer.index, "copying", score), ratio, chance, blocks)


class _Targets:
    """Masks, rows and formula of every score on one stack's texts."""

    def __init__(self, text: Repeats, causal: bool) -> None:
        tokens = text.tokens
        rows = text.content.to(tokens.device).expand(tokens.shape)
        later = rows & (rows.cumsum(1) > text.length)
        masks = {pattern: pattern_mask(tokens, pattern) for pattern in PATTERNS}
        earlier = masks["induction"]
        self.questions = {(pattern, f): (mask, rows, f) for pattern, mask in masks.items() for f in FORMULAS}
        self.questions["prefix", "all"] = (earlier, later, "share")
        self.questions["prefix", "last"] = (last_only(earlier), later, "share")
        num = tokens.shape[1]
        self._admissible = torch.ones(num, num, dtype=torch.bool, device=tokens.device)
        self._admissible = self._admissible.tril() if causal else self._admissible
        self._content = text.content.to(tokens.device)
        self._chances: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}

    def keys(self, settings: PatternScores) -> Tensor:
        """(Q, K): keys that are left."""
        kept = self._admissible & (self._content | (not settings.exclude_special))
        return kept & ~torch.eye(len(kept), dtype=torch.bool, device=kept.device) if settings.exclude_current else kept

    def chance(self, pattern: str, score: str, settings: PatternScores) -> tuple[Tensor, Tensor]:
        """The score's sums for uniform attention."""
        if (pattern, score) not in self._chances:
            mask, rows, formula = self.questions[pattern, score]
            keys = self.keys(settings).double()
            uniform = keys / keys.sum(1, keepdim=True).clamp(min=1)
            self._chances[pattern, score] = pattern_sums(uniform.expand(len(mask), 1, -1, -1), mask, rows, formula)
        return self._chances[pattern, score]


class _Sums:
    """Numerators and denominators by stack, layer, pattern and score: (64, H) each, and the control's."""

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
                where = {"stack": stack, "kind": "self", "layer": layer, "head": head}
                scale = "any" if score in ("logit", "absolute") else "share"
                estimate = compact(ratio_estimate(above[:, head], below[:, head], float(baseline), scale))
                estimate["count"] = round(below[:, head].sum())
                yield {**where, "pattern": pattern, "score": score, **estimate}
