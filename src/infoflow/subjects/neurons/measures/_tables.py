"""Tables of neurons: shares of each kind by layer, and the clearest neurons with what they detect and write."""

# F neuron, G group of bootstrap blocks

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import UserError
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns

from ._activity import feed_forward_parts
from ._counts import counted
from ._kinds import SHAPES
from ._layer import DETECTOR, LayerNeurons, leave_out

DEAD, POSITIONAL, ACTIVE, SUPPRESSING = "dead", "positional", "activity", "suppressing"
_EVEN = 0.5  # activity of a neuron with symmetric input

_PLACE = (Column("stack", "string", "", "encoder or decoder"), Column("layer", "int64", "", "block, from 0"))
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
            "mean that its update adds to the logits of its triggers where it is active; NaN: no head",
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

    $a_n$ is the number of ordinary tokens at which neuron n of F is active, I is `position_information`; token
    detectors follow section 4.2 of the paper. A neuron is **active** where its nonlinearity is above 0. For ReLU this
    is the paper's definition. GELU, SiLU and the like have the sign of their input, and a negative one is close to 0:
    at least −0.17 for GELU and −0.28 for SiLU. In a gated layer the nonlinearity decides, not the product, whose sign
    also depends on the other factor.

    One pass reads all texts, and its memory does not grow with them: for each neuron and each of 8 groups of sentences
    it has a counter for each bin of positions and 32 counters of tokens with known error, see `KEPT`. Error bars leave
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
        found = np.array([one.found for one in layer.detectors])
        yield row(DEAD, (active == 0).mean(-1), float((1 - shares[0].mean()) ** tokens[0]))
        undecided = float(layer.detectors[0].undecided.mean())
        yield row(DETECTOR, found.mean(-1), layer.control_detectors(), undecided)
        positional, of_control = layer.positional, layer.control_positional
        yield row(POSITIONAL, positional.mean(-1), float(of_control.mean()))
        for number, shape in enumerate(SHAPES):
            control = float((of_control & (layer.control_shapes == number)).mean())
            yield row(shape, (positional & (layer.shapes == number)).mean(-1), control)
        if living := int((active[0] > 0).sum()):
            yield row(ACTIVE, shares.sum(-1) / np.maximum((shares > 0).sum(-1), 1), _EVEN, neurons=living)
        if found[0].any() and layer.head is not None:
            away, others = layer.away()
            values = np.array([away[one].mean() if one.any() else np.nan for one in found])
            yield row(SUPPRESSING, values, float(others[found[0]].mean()), neurons=int(found[0].sum()))


class NeuronExamples(_OfNeurons):
    r"""The clearest token detectors and positional neurons of each layer, as in `Neurons`.

    A detector has its triggers, and the tokens whose logits its update raises and lowers most: the row of the second
    feed-forward matrix times the unembedding and the neuron's mean activation where it is active,
    $\bar a_n w_n^{out} U^T$, as if written to the last state and without a final norm. In a gated layer $\bar a_n$ may
    be negative. A positional neuron has its profile: the share of tokens at which it is active, by position.

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
        detecting = np.where(layer.detectors[0].found, layer.active.sum(0), 0)
        following = np.where(layer.positional[0], layer.information[0], 0)
        for row, sizes in ((layer.detector_row, detecting), (layer.positional_row, following)):
            for neuron in np.argsort(-sizes, kind="stable")[: self.each]:
                if sizes[neuron]:
                    yield row(int(neuron))
