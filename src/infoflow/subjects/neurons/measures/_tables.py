"""Tables of neurons: shares of each kind by layer, and the clearest neurons with what they detect and write."""

# F neuron, G group of bootstrap blocks, P bin of positions, K candidate token, V token type, D width

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow._transformers import Conv1D
from infoflow.corpus import printable
from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import UserError
from infoflow.models import Model, weight_of
from infoflow.representations import BlockGroups
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._activity import feed_forward_parts
from ._counts import CANDIDATES, GROUPS, ORDERS, ActivityCounts, Counted, counted, ngram_tokens, position_bin
from ._kinds import LEAST, POSITIONAL_NATS, SHAPES, Detectors, position_information, shapes, token_detectors

DETECTOR, BIGRAM, TRIGRAM = "detector", "bigram detector", "trigram detector"
DETECTORS = dict(zip(ORDERS, (DETECTOR, BIGRAM, TRIGRAM), strict=True))
"""Kinds of detectors by the number of tokens in what they detect."""
_WRITTEN = 5  # tokens that an update promotes or suppresses most
_SENTENCE = 160  # characters


class LayerNeurons:
    """The neurons of one layer. Arrays over (1 + G) hold all sentences first, then those without each group."""

    def __init__(self, reader: Reader, counted: Counted, stack: str, layer: int) -> None:
        self.reader, self.stack, self.layer = reader, stack, layer
        self._all, self._part = counted.stacks[stack], counted.part(stack, layer)
        self._own, self._control = self._all.layers[layer], self._all.controls[layer]
        self.tokens, self.active = self._all.positions.sum(1).numpy(), self._own.active.numpy()  # (G,), (G, F)
        self.by_order = {order: self._detectors(order) for order in ORDERS}
        at, places = leave_out(self._own.positions.numpy()), leave_out(self._all.positions.numpy())
        self.information = position_information(at, places)
        self.positional = self.information > POSITIONAL_NATS
        self.shapes = np.array([shapes(*one) for one in zip(at, places, strict=True)])
        control = self._control.positions[0].numpy(), self._all.control_positions.numpy()
        self.control_information = position_information(*control)
        self.control_positional, self.control_shapes = self.control_information > POSITIONAL_NATS, shapes(*control)

    def _detectors(self, order: int) -> list[Detectors]:
        """The neurons that detect n-grams of this order."""
        ids, counts, lost, frequencies = self._candidates(self._own, order)
        sums = zip(*map(leave_out, (counts, lost, self.active, frequencies)), strict=True)
        return [token_detectors(ids, *one) for one in sums]

    def _candidates(self, counts: ActivityCounts, order: int) -> tuple[np.ndarray, ...]:
        """Places of n-grams in the list of frequencies (K, F); how often they activate each neuron in each group,
        (G, K, F); by how much that may be too low; and the frequencies."""
        ids, by_group = counts.ngrams[order].by_group(CANDIDATES)
        frequencies = self._all.frequencies
        if order > 1:
            ids, frequencies = self._all.ngrams[order].index(ids), self._all.ngrams[order].counts
        return ids.numpy(), by_group.numpy(), counts.ngrams[order].lost.numpy(), frequencies.numpy()

    def control_detectors(self, order: int) -> float:
        """Share of detectors among neurons with the same activity but shuffled n-grams."""
        ids, *sums = self._candidates(self._control, order)
        counts, lost, frequencies = (one.sum(0) for one in sums)
        return float(token_detectors(ids, counts, lost, self.active.sum(0), frequencies).found.mean())

    def detecting(self, order: int) -> np.ndarray:
        """(1 + G, F) bool: the neurons that detect n-grams of this order, but none of a lower one."""
        found = [np.array([one.found for one in self.by_order[each]]) for each in ORDERS if each <= order]
        return found[-1] & ~np.any([*found[:-1], np.zeros_like(found[-1])], axis=0)

    def estimate(self, values: np.ndarray, baseline: float, scale: Any) -> dict[str, Any]:
        values = np.where(np.isfinite(values), values, values[0])
        groups = BlockGroups(GROUPS, torch.empty(0, dtype=torch.int64), torch.from_numpy(self.tokens))
        units, count = int((self.tokens > 0).sum()), int(self.tokens.sum())
        return estimate(values[0], groups.replicates(values), baseline, count, scale=scale, units=units)

    @cached_property
    def head(self) -> Tensor | None:
        """The unembedding (V, D), if this stack writes to it."""
        model = self.reader.model
        head = model.module.get_output_embeddings()
        if self.stack != model.anatomy.predicts.name or not isinstance(head, torch.nn.Linear):
            return None
        weight = weight_of(head).float().cpu()
        return weight if weight.shape[1] == model.anatomy.stack(self.stack).width else None

    @cached_property
    def _updates(self) -> Tensor:
        """The row that each neuron writes, (F, D)."""
        module = self.reader.model.module.get_submodule(self._part.out)
        weight = weight_of(module).float().cpu()
        return weight if isinstance(module, Conv1D) else weight.T

    def effect(self, neuron: int) -> np.ndarray:
        """Mean logits that the neuron adds to each token where it is active, (V,)."""
        assert self.head is not None
        mean = float(self._own.written[neuron]) / max(int(self.active[:, neuron].sum()), 1)
        return (self.head @ self._updates[neuron] * mean).numpy()

    def away(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether each detector lowers its triggers' mean logit, and the share of tokens whose logit it lowers."""
        away, others = np.zeros((2, self.active.shape[1]))
        common = np.flatnonzero(self._all.frequencies.sum(0).numpy() >= LEAST)
        for neuron in np.flatnonzero(self.detecting(1).any(axis=0)):
            triggers = next(one.tokens[:, neuron] for one in self.by_order[1] if one.found[neuron])
            logits = self.effect(int(neuron))
            away[neuron] = logits[triggers[triggers >= 0]].mean() < 0
            others[neuron] = (logits[common] < 0).mean()
        return away, others

    def detector_row(self, neuron: int, order: int = 1) -> dict[str, Any]:
        triggers = self.by_order[order][0].tokens[:, neuron]
        triggers = triggers[triggers >= 0]
        ids, counts, _, frequencies = self._candidates(self._own, order)
        on_triggers = counts[:, np.isin(ids[:, neuron], triggers), neuron].sum(1)
        shares = leave_out(on_triggers) / np.maximum(leave_out(self.active[:, neuron]), 1)
        of_all = float(frequencies.sum(0)[triggers].sum() / self.tokens.sum())
        types = self._all.frequencies.shape[1]
        tokens = [[int(one)] for one in triggers]
        if order > 1:
            tokens = [ngram_tokens(int(self._all.ngrams[order].ids[one]), types) for one in triggers]
        written = {}
        if self.head is not None:
            logits = self.effect(neuron)
            sorted_ids = np.argsort(logits)[:, None]
            written = {
                "effect": float(logits[[each[-1] for each in tokens]].mean()),
                "promoted": self._named(sorted_ids[: -_WRITTEN - 1 : -1]),
                "suppressed": self._named(sorted_ids[:_WRITTEN]),
            }
        words = {"triggers": self._named(tokens), "sentence": self._sentence(tokens[0])}
        return self._row(neuron, DETECTORS[order], **words, **written) | self.estimate(shares, of_all, "share")

    def positional_row(self, neuron: int) -> dict[str, Any]:
        number = self.estimate(self.information[:, neuron], float(self.control_information[neuron]), "any")
        return self._row(neuron, SHAPES[self.shapes[0, neuron]]) | number

    def _row(self, neuron: int, kind: str, **more: Any) -> dict[str, Any]:
        tokens, active = self._all.positions.sum(0).numpy(), self._own.positions.sum(0).numpy()[:, neuron]
        (bins,) = np.nonzero(tokens)
        firsts = np.searchsorted(position_bin(np.arange(2 * self.reader.longest(self.reader.rows) + 2)), bins)
        nothing = {"triggers": "", "effect": float("nan"), "promoted": "", "suppressed": "", "sentence": ""}
        profile = {"positions": firsts.astype(float).tolist(), "profile": (active[bins] / tokens[bins]).tolist()}
        activity = float(active.sum() / tokens.sum())
        return {"neuron": neuron, "kind": kind, "activity": activity} | profile | nothing | more

    def _named(self, ngrams: Sequence[Sequence[int]] | np.ndarray) -> str:
        tokenizer = self.reader.tokenizer(self.stack)
        known = [[int(token) for token in tokens] for tokens in ngrams if max(tokens) < len(tokenizer)]
        return ", ".join(f"“{printable(str(tokenizer.decode(tokens)))}”" for tokens in known)

    def _sentence(self, trigger: list[int]) -> str:
        """The first text with the most frequent trigger, if this stack reads the text; otherwise ""."""
        for row in self.reader.rows.tolist() if self.stack == self.reader.source_stack else ():
            tokens = self.reader.sentence_rows(row, "clean", 0)[self.stack].tokens
            windows = np.lib.stride_tricks.sliding_window_view(tokens, min(len(trigger), len(tokens)))
            if (windows == np.array(trigger)[: windows.shape[1]]).all(1).any():
                (sentence,) = self.reader.corpus.select([row])
                return printable(sentence.text)[:_SENTENCE]
        return ""


def leave_out(counts: np.ndarray) -> np.ndarray:
    """The sum over all groups, then the sums without each group: (G, ...) to (1 + G, ...)."""
    total = counts.sum(0, keepdims=True)
    return np.concatenate([total, total - counts])


DEAD, POSITIONAL, ACTIVE, SUPPRESSING = "dead", "positional", "activity", "suppressing"
_EVEN = 0.5  # activity of a neuron whose input is symmetric around 0

_PLACE = (Column("stack", "string", "", "encoder or decoder"), Column("layer", "int64", "", "block, from 0"))
NEURONS_BY_LAYER = TableSchema(
    name="neurons_by_layer",
    version=2,
    description="Shares of feed-forward neurons of each kind. A neuron is active where its nonlinearity is above 0. "
    "dead: never active; detector: active if and only if the token is one of at most five; bigram detector, trigram "
    "detector: active if and only if the last two or three tokens are one of at most five n-grams, but no detector of "
    "shorter ones; positional: its activity has more than .05 nats of information about the token's position; "
    "oscillating, two-sided, one-sided and other position: positional neurons by shape; activity: mean share of tokens "
    "at which living neurons are active; suppressing: share of the detectors of tokens whose update lowers the logits "
    "of their own triggers.",
    columns=(
        *_PLACE,
        Column("kind", "string", "", "see above"),
        Column("neurons", "int64", "neurons", "number of neurons of which the value is a share or a mean"),
        Column("undecided", "float64", "share", "neurons that counters cannot classify; they widen the interval"),
        *estimate_columns(
            "share",
            "share of the neurons (for activity: of the tokens)",
            "detectors: the same activity with shuffled tokens or n-grams; positional and shapes: at the position of "
            "another occurrence of the same token; dead: the chance that a neuron of mean activity never fires; "
            "activity: one half; suppressing: share of all tokens whose logits these updates lower",
            "tokens",
        ),
    ),
)
NEURON_EXAMPLES = TableSchema(
    name="neuron_examples",
    version=2,
    description="The clearest detectors of tokens, bigrams and trigrams (the most frequently active ones) and "
    "positional neurons (most information) of each layer.",
    columns=(
        *_PLACE,
        Column("neuron", "int64", "", "index of the activation, from 0"),
        Column("kind", "string", "", "kind of detector, or the shape of a positional neuron's profile"),
        Column("triggers", "string", "", "tokens or n-grams that it detects, most frequent first"),
        Column(
            "effect",
            "float64",
            "logits",
            "mean amount that its update adds to the logits of its triggers (of an n-gram: of its last token) where it "
            "is active; NaN: no head",
        ),
        Column("promoted", "string", "", "tokens with the highest logits of the update; empty: no head"),
        Column("suppressed", "string", "", "tokens with the lowest logits of the update"),
        Column("sentence", "string", "", "a text of the corpus with a trigger"),
        Column("activity", "float64", "share", "share of tokens at which it is active"),
        Column("positions", "list<float64>", "tokens", "first position of each bin with tokens"),
        Column("profile", "list<float64>", "share", "share of each bin's tokens at which it is active"),
        *estimate_columns(
            "share or nats",
            "detector: share of its activations on its triggers; positional: information about position, nats",
            "detector: share of its triggers among all tokens; positional: information about the position of another "
            "occurrence of the same token",
            "tokens",
        ),
    ),
)


class _OfNeurons(Intervention):
    by_token = True

    def refusal(self, model: Model) -> str | None:
        try:
            feed_forward_parts(model)
        except UserError as error:
            return str(error).removesuffix(".")
        return None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = counted(reader, options)
        layers = (
            LayerNeurons(reader, found, name, layer) for name, stack in found.stacks.items() for layer in stack.layers
        )
        rows = [{"stack": one.stack, "layer": one.layer, **row} for one in layers for row in self.rows(one)]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def rows(self, layer: LayerNeurons) -> Iterator[dict[str, Any]]:
        raise NotImplementedError


class Neurons(_OfNeurons):
    r"""Shares of dead, token-detecting and positional neurons in each layer.

    $$ \mathrm{dead} = \frac1F \big|\{n : a_n = 0\}\big|, \qquad
       \mathrm{positional} = \frac1F \big|\{n : I(\mathrm{act}_n, \mathrm{pos}) > .05\}\big| $$

    $a_n$ is the number of ordinary tokens at which neuron n of F is active, I is `position_information`; detectors of
    tokens and of n-grams follow section 4.2 of the paper. A neuron is **active** where its nonlinearity is above 0. For
    ReLU this is the paper's definition. GELU, SiLU and the like have the sign of their input, and their negative values
    are close to 0: at least −0.17 for GELU and −0.28 for SiLU. In a gated layer the nonlinearity decides, not the
    product, whose sign also depends on the other factor.

    One pass reads all texts, and its memory does not grow with them: for each neuron and each of 8 groups of sentences
    it has a counter for each bin of positions and, for tokens, bigrams and trigrams, 32 counters whose error is bounded
    (see `KEPT`). N-grams are also counted without the model, before and after that pass. Error bars come from leaving
    out one group at a time.

    Source: [@voita2023neurons] for OPT. Occurrences needed for a trigger, and thresholds of shapes, are ours.
    """

    table: ClassVar[TableSchema] = NEURONS_BY_LAYER

    def rows(self, layer: LayerNeurons) -> Iterator[dict[str, Any]]:
        def row(kind: str, values: np.ndarray, baseline: float, undecided: float = 0.0, neurons: int = 0) -> dict:
            numbers = layer.estimate(values, baseline, "share")
            numbers["high"] = min(1.0, numbers["high"] + undecided)
            return {"kind": kind, "neurons": neurons or layer.active.shape[1], "undecided": undecided, **numbers}

        active, tokens = leave_out(layer.active), leave_out(layer.tokens)
        shares = active / np.maximum(tokens, 1)[:, None]
        yield row(DEAD, (active == 0).mean(-1), float((1 - shares[0].mean()) ** tokens[0]))
        for order, kind in DETECTORS.items():
            undecided = float(layer.by_order[order][0].undecided.mean())
            yield row(kind, layer.detecting(order).mean(-1), layer.control_detectors(order), undecided)
        positional, of_control = layer.positional, layer.control_positional
        yield row(POSITIONAL, positional.mean(-1), float(of_control.mean()))
        for number, shape in enumerate(SHAPES):
            control = float((of_control & (layer.control_shapes == number)).mean())
            yield row(shape, (positional & (layer.shapes == number)).mean(-1), control)
        if living := int((active[0] > 0).sum()):
            yield row(ACTIVE, shares.sum(-1) / np.maximum((shares > 0).sum(-1), 1), _EVEN, neurons=living)
        found = layer.detecting(1)
        if found[0].any() and layer.head is not None:
            away, others = layer.away()
            values = np.array([away[one].mean() if one.any() else np.nan for one in found])
            yield row(SUPPRESSING, values, float(others[found[0]].mean()), neurons=int(found[0].sum()))


class NeuronExamples(_OfNeurons):
    r"""The clearest token detectors and positional neurons of each layer, as in `Neurons`.

    A detector comes with its triggers and the tokens whose logits its update raises and lowers most. The update is the
    row of the second feed-forward matrix times the unembedding and the neuron's mean activation where it is active,
    $\bar a_n w_n^{out} U^T$, as if written to the last state and without a final norm. In a gated layer $\bar a_n$ may
    be negative. A positional neuron comes with its profile: the share of tokens at which it is active, by position.

    Args:
        each: Maximum number of neurons of each kind in a layer.

    Source: [@voita2023neurons], figures 5 and 7.
    """

    table: ClassVar[TableSchema] = NEURON_EXAMPLES

    def __init__(self, each: int = 5) -> None:
        if each < 1:
            raise UserError(f"each must be at least 1. Got {each}.")
        self.each = each

    def rows(self, layer: LayerNeurons) -> Iterator[dict[str, Any]]:
        clearest = [
            (partial(layer.detector_row, order=order), np.where(layer.detecting(order)[0], layer.active.sum(0), 0))
            for order in ORDERS
        ]
        following = np.where(layer.positional[0], layer.information[0], 0)
        for row, sizes in (*clearest, (layer.positional_row, following)):
            for neuron in np.argsort(-sizes, kind="stable")[: self.each]:
                if sizes[neuron]:
                    yield row(int(neuron))
