"""Tables of neurons: shares of each kind by layer, and the clearest neurons with what they detect and write."""

# F neuron, G group of bootstrap blocks, V token type

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
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
from ._counts import GROUPS, ActivityCounts, Counted, StackCounts, counted, position_bin
from ._kinds import (
    LEAST,
    POSITIONAL_NATS,
    SHAPES,
    Detectors,
    position_information,
    shapes,
    token_detectors,
)

DEAD, DETECTOR, POSITIONAL, ACTIVE, SUPPRESSING = "dead", "detector", "positional", "activity", "suppressing"
_CANDIDATES = 16  # tokens of a neuron looked at without a group of sentences
_WRITTEN = 5  # tokens that an update promotes or suppresses most
_SENTENCE = 160  # characters
_EVEN = 0.5  # activity of a neuron with symmetric input

_PLACE = (
    Column("stack", "string", "", "encoder or decoder"),
    Column("layer", "int64", "", "block, from 0"),
)
NEURONS_BY_LAYER = TableSchema(
    name="neurons_by_layer",
    version=1,
    description="Shares of feed-forward neurons of each kind. A neuron is active where its nonlinearity is above 0. "
    "dead: never active; detector: active if and only if the token is one of at most five; positional: its activity "
    "has more than .05 nats of information about the token's position; oscillating, two-sided, one-sided and other "
    "position: positional neurons by shape; activity: mean share of tokens at which living neurons are active; "
    "suppressing: share of the detectors whose update lowers the logits of their own triggers.",
    columns=(
        *_PLACE,
        Column("kind", "string", "", "see above"),
        Column("neurons", "int64", "neurons", "number behind the value, which is a share or a mean of them"),
        Column("undecided", "float64", "share", "neurons that bounded counts leave open; they widen the interval"),
        *estimate_columns(
            "share",
            "share of the neurons (activity: of the tokens)",
            "detector: the same activity with shuffled tokens; positional and shapes: at the position of another "
            "occurrence of the same token; dead: the chance that a neuron of mean activity never fires; activity: one "
            "half; suppressing: share of all tokens whose logits these updates lower",
            "tokens",
        ),
    ),
)
NEURON_EXAMPLES = TableSchema(
    name="neuron_examples",
    version=1,
    description="The clearest token detectors (the most frequently active ones) and positional neurons (most "
    "information) of each layer.",
    columns=(
        *_PLACE,
        Column("neuron", "int64", "", "index of the activation, from 0"),
        Column("kind", "string", "", "detector, or the shape of a positional neuron's profile"),
        Column("triggers", "string", "", "tokens that it detects, most frequent first"),
        Column(
            "effect",
            "float64",
            "logits",
            "that its update adds to those of its triggers where it is active, mean; NaN: no head",
        ),
        Column("promoted", "string", "", "tokens with the highest logits of the update; empty: no head"),
        Column("suppressed", "string", "", "tokens with the lowest logits of the update"),
        Column("sentence", "string", "", "a text of the corpus with a trigger"),
        Column("activity", "float64", "share", "tokens at which it is active"),
        Column("positions", "list<float64>", "tokens", "first position of each bin with tokens"),
        Column("profile", "list<float64>", "share", "tokens of these positions at which it is active"),
        *estimate_columns(
            "share or nats",
            "detector: share of its activations on its triggers; positional: information about position, nats",
            "detector: share of its triggers among all tokens; positional: the same at the position of another "
            "occurrence of the same token",
            "tokens",
        ),
    ),
)


class _OfNeurons(Intervention):
    """A measure of feed-forward activations."""

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

    def rows(self, layer: "LayerNeurons") -> Iterator[dict[str, Any]]:
        raise NotImplementedError


class Neurons(_OfNeurons):
    r"""Shares of dead, token-detecting and positional neurons in each layer.

    $$ \mathrm{dead} = \frac1F \big|\{n : a_n = 0\}\big|, \qquad
       \mathrm{positional} = \frac1F \big|\{n : I(\mathrm{act}_n, \mathrm{pos}) > .05\}\big| $$

    $a_n$ is the number of ordinary tokens at which neuron n of F is active, I is `position_information`; token
    detectors follow section 4.2 of the paper. A neuron is **active** where its nonlinearity is above 0. For ReLU this
    is the paper's definition. GELU, SiLU and the like have the sign of their input, and a negative one is close to
    0: at least −0.17 for GELU and −0.28 for SiLU. In a gated layer it is the nonlinearity that decides, not the
    product, whose sign also depends on the other factor.

    One pass reads all texts, and its memory does not grow with them: for each neuron and each of 8 groups of sentences
    it has a counter for each bin of positions and 32 counters of tokens with known error, see `KEPT`. Error bars leave
    out one group at a time.

    Source: [@voita2023neurons] for OPT. Occurrences needed for a trigger, and thresholds of shapes, are ours.
    """

    table: ClassVar[TableSchema] = NEURONS_BY_LAYER

    def rows(self, layer: "LayerNeurons") -> Iterator[dict[str, Any]]:
        yield layer.row(DEAD, layer.dead, layer.chance_of_death)
        yield layer.row(DETECTOR, layer.detecting, layer.control_detectors, layer.detectors[0].undecided.mean())
        yield layer.row(POSITIONAL, layer.positional, layer.control_positional(None))
        for shape in range(len(SHAPES)):
            yield layer.row(SHAPES[shape], layer.of_shape(shape), layer.control_positional(shape))
        if layer.activity[0] > 0:
            yield layer.row(ACTIVE, layer.activity, _EVEN, neurons=int(layer.living.sum()))
        if layer.away is not None and layer.detectors[0].found.any():
            suppressing = np.array([_mean(layer.away[0], one.found) for one in layer.detectors])
            of_others = float(layer.away[1][layer.detectors[0].found].mean())
            yield layer.row(SUPPRESSING, suppressing, of_others, neurons=int(layer.detectors[0].found.sum()))


class NeuronExamples(_OfNeurons):
    r"""The clearest token detectors and positional neurons of each layer, as in `Neurons`.

    A detector has its triggers, and the tokens whose logits its update raises and lowers most: the row of the second
    feed-forward matrix times the unembedding and the neuron's mean activation where it is active,
    $\bar a_n w_n^{out} U^T$, as if written to the last state and without a final norm. In a gated layer $\bar a_n$ may
    be negative. A positional neuron has its profile: the share of tokens at which it is active, by position.

    Args:
        each: Maximum number of neurons of each of both kinds in a layer.

    Source: [@voita2023neurons], figures 5 and 7.
    """

    table: ClassVar[TableSchema] = NEURON_EXAMPLES

    def __init__(self, each: int = 5) -> None:
        if each < 1:
            raise UserError(f"each must be at least 1. Got {each}.")
        self.each = each

    def rows(self, layer: "LayerNeurons") -> Iterator[dict[str, Any]]:
        active = np.where(layer.detectors[0].found, layer.active.sum(0), 0)
        for neuron in np.argsort(-active, kind="stable")[: self.each]:
            if active[neuron]:
                yield layer.detector_row(int(neuron))
        nats = np.where(layer.information[0] > POSITIONAL_NATS, layer.information[0], 0)
        for neuron in np.argsort(-nats, kind="stable")[: self.each]:
            if nats[neuron]:
                yield layer.positional_row(int(neuron))


@dataclass(eq=False)
class LayerNeurons:
    """The neurons of one layer. Lists over (1 + G) hold all sentences first, then those without each group."""

    reader: Reader
    counted: Counted
    stack: str
    layer: int

    @property
    def _all(self) -> StackCounts:
        return self.counted.stacks[self.stack]

    @property
    def _own(self) -> ActivityCounts:
        return self._all.layers[self.layer]

    @property
    def _control(self) -> ActivityCounts:
        return self._all.controls[self.layer]

    @cached_property
    def active(self) -> np.ndarray:
        """(G, F)."""
        return self._own.active.numpy()

    @cached_property
    def tokens(self) -> np.ndarray:
        """(G,) tokens of each group."""
        return self._all.positions.sum(1).numpy()

    @property
    def living(self) -> np.ndarray:
        return self.active.sum(0) > 0

    @property
    def neurons(self) -> int:
        return self.active.shape[1]

    def row(
        self, kind: str, values: np.ndarray, baseline: float, undecided: float = 0.0, neurons: int | None = None
    ) -> dict[str, Any]:
        numbers = self._estimate(values, baseline, "share")
        numbers["high"] = min(1.0, numbers["high"] + undecided)
        neurons = self.neurons if neurons is None else neurons
        return {"kind": kind, "neurons": neurons, "undecided": undecided, **numbers}

    def _estimate(self, values: np.ndarray, baseline: float, scale: Any) -> dict[str, Any]:
        values = np.where(np.isfinite(values), values, values[0])
        groups = BlockGroups(GROUPS, torch.empty(0, dtype=torch.int64), torch.from_numpy(self.tokens))
        units, count = int((self.tokens > 0).sum()), int(self.tokens.sum())
        return estimate(values[0], groups.replicates(values), baseline, count, scale=scale, units=units)

    @cached_property
    def dead(self) -> np.ndarray:
        return (_leave_out(self.active) == 0).mean(-1)

    @property
    def chance_of_death(self) -> float:
        return float((1 - self.active.sum() / self.tokens.sum() / self.neurons) ** self.tokens.sum())

    @cached_property
    def activity(self) -> np.ndarray:
        share = _leave_out(self.active) / np.maximum(_leave_out(self.tokens), 1)[:, None]
        return share.sum(-1) / np.maximum((share > 0).sum(-1), 1)

    @cached_property
    def _candidates(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (16, F), and how often they activate each neuron in each group (G, 16, F)."""
        ids, counts = self._own.tokens.by_group(_CANDIDATES)
        return ids.numpy(), counts.numpy()

    @cached_property
    def detectors(self) -> list[Detectors]:
        ids, counts = self._candidates
        frequencies, lost = self._all.frequencies.numpy(), self._own.tokens.lost.numpy()
        each = zip(*(_leave_out(x) for x in (counts, lost, self.active, frequencies)), strict=True)
        return [token_detectors(ids, *one) for one in each]

    @property
    def detecting(self) -> np.ndarray:
        return np.array([one.found.mean() for one in self.detectors])

    @property
    def control_detectors(self) -> float:
        counts = self._control.tokens
        ids, of_groups = counts.by_group(_CANDIDATES)
        active, frequencies = self._own.active.sum(0), self._all.frequencies.sum(0)
        given = (ids, of_groups.sum(0), counts.lost.sum(0), active, frequencies)
        return float(token_detectors(*(x.numpy() for x in given)).found.mean())

    @cached_property
    def information(self) -> np.ndarray:
        return position_information(_leave_out(self._own.positions.numpy()), _leave_out(self._all.positions.numpy()))

    @cached_property
    def control_information(self) -> np.ndarray:
        return position_information(self._control.positions[0].numpy(), self._all.control_positions.numpy())

    @property
    def positional(self) -> np.ndarray:
        return (self.information > POSITIONAL_NATS).mean(-1)

    @cached_property
    def _shapes(self) -> np.ndarray:
        given = zip(_leave_out(self._own.positions.numpy()), _leave_out(self._all.positions.numpy()), strict=True)
        return np.array([shapes(*one) for one in given])

    def of_shape(self, shape: int) -> np.ndarray:
        return ((self.information > POSITIONAL_NATS) & (self._shapes == shape)).mean(-1)

    def control_positional(self, shape: int | None) -> float:
        positional = self.control_information > POSITIONAL_NATS
        if shape is not None:
            found = shapes(self._control.positions[0].numpy(), self._all.control_positions.numpy())
            positional = positional & (found == shape)
        return float(positional.mean())

    @cached_property
    def _head(self) -> Tensor | None:
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
        part = self.counted.part(self.stack, self.layer)
        module = self.reader.model.module.get_submodule(part.out)
        weight = weight_of(module).float().cpu()
        return weight if isinstance(module, Conv1D) else weight.T

    def effect(self, neuron: int) -> np.ndarray:
        """Logits that the neuron adds to each token where it is active, mean, (V,)."""
        assert self._head is not None
        mean = float(self._own.written[neuron]) / max(int(self.active[:, neuron].sum()), 1)
        return (self._head @ self._updates[neuron] * mean).numpy()

    @cached_property
    def away(self) -> tuple[np.ndarray, np.ndarray] | None:
        """For each detector, whether its update lowers its triggers' mean logit, and the share of other tokens."""
        if self._head is None:
            return None
        away, others = np.zeros(self.neurons), np.zeros(self.neurons)
        common = np.flatnonzero(self._all.frequencies.sum(0).numpy() >= LEAST)
        for neuron in np.flatnonzero(np.any([one.found for one in self.detectors], axis=0)):
            triggers = next(one.tokens[:, neuron] for one in self.detectors if one.found[neuron])
            logits = self.effect(int(neuron))
            away[neuron] = logits[triggers[triggers >= 0]].mean() < 0
            others[neuron] = (logits[common] < 0).mean()
        return away, others

    def detector_row(self, neuron: int) -> dict[str, Any]:
        triggers = self.detectors[0].tokens[:, neuron]
        triggers = triggers[triggers >= 0]
        ids, counts = self._candidates
        on_triggers = counts[:, np.isin(ids[:, neuron], triggers), neuron].sum(1)
        shares = _leave_out(on_triggers) / np.maximum(_leave_out(self.active[:, neuron]), 1)
        frequencies = self._all.frequencies.sum(0).numpy()
        written = {"effect": float("nan"), "promoted": "", "suppressed": ""}
        if self._head is not None:
            logits = self.effect(neuron)
            order = np.argsort(logits)
            written["effect"] = float(logits[triggers].mean())
            written["promoted"] = self._named(order[: -_WRITTEN - 1 : -1])
            written["suppressed"] = self._named(order[:_WRITTEN])
        numbers = self._estimate(shares, float(frequencies[triggers].sum() / self.tokens.sum()), "share")
        named = {"kind": DETECTOR, "triggers": self._named(triggers), "sentence": self._sentence(triggers)}
        return {**self._neuron(neuron), **named, **written, **numbers}

    def positional_row(self, neuron: int) -> dict[str, Any]:
        kind = SHAPES[self._shapes[0, neuron]]
        nothing = {"triggers": "", "effect": float("nan"), "promoted": "", "suppressed": "", "sentence": ""}
        baseline = float(self.control_information[neuron])
        return {
            **self._neuron(neuron),
            "kind": kind,
            **nothing,
            **self._estimate(self.information[:, neuron], baseline, "any"),
        }

    def _neuron(self, neuron: int) -> dict[str, Any]:
        tokens, active = self._all.positions.sum(0).numpy(), self._own.positions.sum(0).numpy()[:, neuron]
        (bins,) = np.nonzero(tokens)
        firsts = np.searchsorted(position_bin(np.arange(2 * self.reader.longest(self.reader.rows) + 2)), bins)
        activity = float(active.sum() / tokens.sum())
        profile = (active[bins] / tokens[bins]).tolist()
        return {"neuron": neuron, "activity": activity, "positions": firsts.astype(float).tolist(), "profile": profile}

    def _named(self, tokens: np.ndarray) -> str:
        tokenizer = self.reader.tokenizer(self.stack)
        names = [printable(str(tokenizer.decode([int(token)]))) for token in tokens if token < len(tokenizer)]
        return ", ".join(f"“{name}”" for name in names)

    def _sentence(self, triggers: np.ndarray) -> str:
        """The first text with the most frequent trigger, if its text is that of this stack."""
        for row in self.reader.rows.tolist() if self.stack == self.reader.source_stack else ():
            if triggers[0] in self.reader.sentence_rows(row, "clean", 0)[self.stack].tokens:
                (sentence,) = self.reader.corpus.select([row])
                return printable(sentence.text)[:_SENTENCE]
        return ""


def _mean(values: np.ndarray, mask: np.ndarray) -> float:
    return float(values[mask].mean()) if mask.any() else float("nan")


def _leave_out(counts: np.ndarray) -> np.ndarray:
    """Sums over groups, then over all but each: (G, ...) to (1 + G, ...)."""
    total = counts.sum(0, keepdims=True)
    return np.concatenate([total, total - counts])
