"""Claims that compare the weights of heads with what the same heads do on text: W1 to W3."""

# R bootstrap replicates, N heads

import numpy as np

from infoflow.findings._curves import spearman
from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, Given, claim, exceeds
from infoflow.findings._head_numbers import heads
from infoflow.findings._model_group import CAUSAL, MASKED, Absent
from infoflow.findings._sources import INDUCTION, Source
from infoflow.findings._table import Reading, SeedRows, Table, exact, together, untrained
from infoflow.heads import HEAD_PATTERNS, HEAD_POSITIONAL

from .measures import HEAD_COMPOSITION, HEAD_WEIGHTS

_FRAMEWORK = Source(
    "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, Transformer Circuits Thread", "second hand"
)
_HEAD = ["layer", "head"]


def _agreement(weights: SeedRows, text: SeedRows) -> np.ndarray:
    """Spearman's correlation over heads between a statistic of weights and one on text, (1 + R, 1)."""
    own, other = weights.frame.set_index(_HEAD), text.frame.set_index(_HEAD)
    common = own.index.intersection(other.index)
    if len(common) < 4:
        raise Absent(f"{len(common)} heads have both numbers, but 4 are needed")
    numbers = SeedRows(other.loc[common], text.number).numbers
    fixed = np.broadcast_to(own.loc[common, "value"].to_numpy(float), numbers.shape)
    return spearman(fixed, numbers)


_W1_READS: dict[str, Reading] = {
    "agreement": together(
        _agreement,
        heads(HEAD_WEIGHTS.name, CAUSAL, statistic="copying"),
        heads(HEAD_PATTERNS.name, CAUSAL, pattern="copying", score="positive"),
    )
}


@claim(
    "weights:W1",
    "Heads of a causal LM whose weights say that they copy do raise the logits of the tokens they attend to.",
    source=_FRAMEWORK,
    published="no number: most heads of a one-layer model have mostly positive eigenvalues, and copy",
    statistic="Spearman's correlation over heads: copying score of the weights with the share of tokens whose own "
    "logit rises when the head attends to them, on repeated random tokens; above 0",
    reads=_W1_READS,
    controls=(Control(name="untrained model", reads=untrained(_W1_READS), decisive=False),),
    given=Given(tasks=("causal-lm",)),
    uncontrolled="both numbers follow from the same matrices, so they agree in untrained models too",
)
def w1(curves: Curves) -> list[Condition]:
    """Condition on the correlation of copying by weights with copying on text."""
    name = "correlation of copying by weights and on text"
    return [exceeds(name, curves["agreement"], 0.0, "Spearman's rho", bounds=CORRELATION)]


@claim(
    "weights:W2",
    "Heads of a masked LM that look at the previous token in text do so because of their weights for positions.",
    source=_FRAMEWORK.beyond,
    published="no number; the question is ours",
    statistic="Spearman's correlation over heads: share of positions whose best key by weights is the previous one, "
    "with the share of queries whose strongest key is the previous token; above 0",
    reads={
        "agreement": together(
            _agreement,
            heads(HEAD_WEIGHTS.name, MASKED, statistic="offset", offset=-1),
            heads(HEAD_POSITIONAL.name, MASKED, offset=-1),
        )
    },
    minimum_seeds=1,
)
def w2(curves: Curves) -> list[Condition]:
    """Condition on the correlation of attention to the previous token by weights and on text."""
    name = "correlation of attention to the previous position by weights and on text"
    return [exceeds(name, curves["agreement"], 0.0, "Spearman's rho", bounds=CORRELATION)]


def _strongest_key(rows: SeedRows) -> np.ndarray:
    """The largest of the heads' scores by key and by value, as multiples of the control."""
    by_via = dict(rows.groups("via"))
    if not {"key", "value"} <= set(by_via):
        raise Absent(f"{HEAD_COMPOSITION.name} lacks composition by key or by value")
    ratios = [(by_via[via].column("value") / by_via[via].column("baseline")).max() for via in ("key", "value")]
    return exact([ratios])


@claim(
    "weights:W3",
    "In a causal LM, composition is strongest through keys: some head finds its keys by what an earlier head wrote, as "
    "induction heads do.",
    source=INDUCTION.beyond,
    published="a two-layer model: induction heads have large K-composition with a previous-token head, small Q and V",
    statistic="largest score by key over all pairs of heads, relative to random rotations, minus the largest by value: "
    "above 0",
    reads={"ratio": Table(HEAD_COMPOSITION.name, CAUSAL, needs=("via",), known=True).reduce(_strongest_key)},
)
def w3(curves: Curves) -> list[Condition]:
    """Condition that compares composition by keys with composition by values."""
    by_key, by_value = np.split(curves["ratio"], 2, axis=1)
    return [exceeds("largest score by key minus the largest by value", by_key - by_value, 0.0, "times the control")]
