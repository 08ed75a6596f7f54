"""Relevance of heads over a corpus."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from infoflow.flow import Intervention, PassOptions, Reader, Stream
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, hash64_array
from infoflow.models import IGNORED, Model
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from .._head_measure import HEAD, HEAD_KEYS, KIND, LAYER, STACK
from ._methods import METHODS
from ._relevance import check_normalise, each_sentence, misses_paths, normalised
from ._request import Place
from ._rule import Rule

HEAD_RELEVANCE = TableSchema(
    name="head_relevance",
    version=1,
    description="Share of a head in the contribution of its layer's heads of one kind to the model's predictions, "
    "averaged over predictions.",
    columns=(
        *HEAD_KEYS,
        Column(name="method", dtype="string", unit="", description="see heads.relevance"),
        Column(name="normalise", dtype="string", unit="", description="signed or abs: over the heads of a layer"),
        *estimate_columns(
            "share of the layer",
            "mean relevance",
            "1 / number of heads: no head matters more than another",
            "number of predictions; those for which a layer's heads sum to 0 are left out of it",
        ),
    ),
)


class Relevance(Intervention):
    r"""`relevance` of every head, averaged over the predictions of some sentences.

    Predictions are decoder steps; every real token of a causal LM; every token except special ones of a masked LM, on
    uncorrupted text. Shares are computed for each prediction and then averaged, as in [@voita2019heads]. An
    encoder–decoder reads the corpus's translations. Intervals resample sentences.

    Args:
        method: See `relevance`.
        sentences: Number of sentences, chosen by hash; it determines the cost of the measure.
        normalise: `"signed"` or `"abs"`.
        rule: For `method="voita"`, like `softmax` and `bias`.

    Source: [@voita2019heads].
    """

    table: ClassVar[TableSchema] = HEAD_RELEVANCE

    def __init__(
        self,
        method: str = "voita",
        sentences: int = 100,
        normalise: str = "signed",
        rule: str = "alphabeta",
        softmax: str = "joint",
        bias: str = "share",
    ) -> None:
        check_normalise(normalise)
        Rule(rule=rule, softmax=softmax, bias=bias)
        if method not in METHODS:
            raise UserError(f"method must be one of {', '.join(METHODS)}. Got {method}.")
        if sentences < 1:
            raise UserError(f"sentences must be at least 1. Got {sentences}.")
        self.method, self.sentences, self.normalise = method, sentences, normalise
        self.rule, self.softmax, self.bias = rule, softmax, bias

    def refusal(self, model: Model) -> str | None:
        if model.task == "encoder":
            return "it has no output head, so it predicts nothing"
        return misses_paths(model, self.method)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        try:
            if len(reader.model.anatomy.stacks) > 1 and not reader.has_target:
                raise UserError(reader.no_target)
            sums = self._sums(reader)
        except UserError as error:
            current_display().note(f"{self.name} of {reader.model.name} is skipped: {error}")
            return pd.DataFrame(columns=self.table.column_names)
        places = [(one.stack, one.kind, one.layer) for one in reader.model.anatomy.attentions()]
        rows = [row for place in places if place in sums for row in self._rows(place, sums[place])]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _sums(self, reader: Reader) -> dict[Place, np.ndarray]:
        """Shares by place: (64, head + 1) sums per bootstrap block, the number of predictions last."""
        chosen = self._choose(reader)
        settings = {"rule": self.rule, "softmax": self.softmax, "bias": self.bias} if self.method == "voita" else {}
        sums: dict[Place, np.ndarray] = {}
        label = f"Relevance of heads in {reader.model.name}"
        with current_display().progress(label, len(chosen), "sentences") as progress:
            for row in chosen:
                padded = reader.padded(np.array([row]))
                batch = _keywords(reader.model, padded.streams)
                block = int(block_of(padded.sentence_ids)[0])
                for _, found in each_sentence(reader.model, batch, self.method, None, None, settings):
                    for place, heads in found.heads.items():
                        _add(sums, place, block, normalised(heads, self.normalise))
                progress.advance(1)
        return sums

    def _choose(self, reader: Reader) -> list[int]:
        """Rows of the sentences with the lowest hashes."""
        rows = reader.rows
        hashes = hash64_array(("head-relevance", reader.seed), reader.corpus.content_ids[rows])
        ordered = rows[np.argsort(hashes, kind="stable")].tolist()
        return list(islice((row for row in ordered if self._predicts(reader, row)), self.sentences))

    def _predicts(self, reader: Reader, row: int) -> bool:
        """Whether a sentence has a prediction: a masked LM predicts no special tokens, and there may be no other."""
        if reader.model.task != "masked-lm":
            return True
        return not reader.sentence_rows(row, "clean", 0)[reader.source_stack].special.all()

    def _rows(self, place: Place, sums: np.ndarray) -> list[dict[str, Any]]:
        stack, kind, layer = place
        num_heads = sums.shape[1] - 1
        keys = {STACK: stack, KIND: kind, LAYER: layer}
        settings = {"method": self.method, "normalise": self.normalise}
        return [
            {**keys, HEAD: head, **settings, **ratio_estimate(sums[:, head], sums[:, -1], 1 / num_heads)}
            for head in range(num_heads)
        ]


def _add(sums: dict[Place, np.ndarray], place: Place, block: int, shares: np.ndarray) -> None:
    kept = shares[~np.isnan(shares).any(1)]
    held = sums.setdefault(place, np.zeros((NUM_BLOCKS, shares.shape[1] + 1)))
    held[block] += [*kept.sum(0), len(kept)]


def _keywords(model: Model, streams: Mapping[str, Stream]) -> dict[str, torch.Tensor]:
    """One sentence as the model's arguments; labels mark the predictions that count."""
    source = next(iter(streams.values()))
    batch = {"input_ids": source.input_ids, "attention_mask": source.real.long()}
    if len(model.anatomy.stacks) > 1:
        target = streams["decoder"]
        return batch | {"decoder_input_ids": target.input_ids, "labels": target.labels}
    if model.task == "masked-lm":
        return batch | {"labels": source.input_ids.masked_fill(~source.valid, IGNORED)}
    return batch
