"""Claims about time: T9, T20, T21."""

from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, claim, exceeds, stays_below
from infoflow.findings._model_group import CAUSAL, MASKED
from infoflow.findings._readings import reach_at
from infoflow.findings._sources import OURS
from infoflow.findings._table import Reading

from ._curves_over_time import (
    FIRST_TOKEN_CURVE,
    INDUCTION_CURVE,
    doublings_between,
    embeddings_settled,
    frequency_correlation,
    identity_dip,
    reach_of_correlation,
    shuffled_deciles,
)


@claim(
    "time:T9",
    "Induction heads appear long before attention concentrates on the first token.",
    source=OURS,
    published="none: ours, exploratory",
    statistic="the middle of the change of attention to the first token, mean over heads, comes after at least four "
    "times as many updates as that of the best head's prefix matching (threshold ours)",
    reads={"later": doublings_between(CAUSAL, INDUCTION_CURVE, FIRST_TOKEN_CURVE)},
    controls=(
        Control(
            name="heads that attend to the previous token instead of induction heads",
            reads={"later": doublings_between(CAUSAL, "positional -1, best self head", FIRST_TOKEN_CURVE)},
        ),
    ),
)
def t9(curves: Curves) -> list[Condition]:
    """How long induction heads appear before attention to the first token."""
    name = "from the middle of induction to that of attention to the first token"
    return [exceeds(name, curves["later"][:, :1], 2.0, "doublings of updates", reach=reach_at(curves["later"], 1))]


@claim(
    "time:T20",
    "In a masked LM, the loss of token identity and its return over the layers come after n-grams are learned.",
    source=OURS,
    published="none: ours, exploratory",
    statistic="information of states about the input token, if inputs are corrupted as in training: at the end, a dip "
    "of .04 nats or more between the first and the last state (the threshold of representations:V-3); half of its "
    "depth is reached after the minimum of the divergence from bigrams",
    reads={"dip": identity_dip(MASKED)},
    controls=(
        Control(name="step 0 at all checkpoints", reads={"dip": identity_dip(MASKED, at_start=True)}, decisive=False),
        # representations:V-3 tests the published dip.
        Control(name="nothing masked", reads={"dip": identity_dip(MASKED, "clean")}, decisive=False),
    ),
    uncontrolled="where nothing changes from step 0 on, nothing comes later",
)
def t20(curves: Curves) -> list[Condition]:
    """Whether the dip of token identity appears after bigrams are learned."""
    depth, later = (curves["dip"][:, [index]] for index in range(2))
    name, reach = "from the minimum of KL(Q2||P) to half of that depth", reach_at(curves["dip"], 2)
    return [
        exceeds("depth of the dip over layers at the end", depth, 0.04, "nats", alone=False),
        exceeds(name, later, 0.0, "doublings of updates", reach=reach),
    ]


_T21_READS: dict[str, Reading] = {"times": embeddings_settled(CAUSAL)}


@claim(
    "time:T21",
    "Embeddings of rare tokens settle last.",
    source=OURS,
    published="none: ours, exploratory",
    statistic="deciles of the types by frequency in the training text: rank correlation of frequency and the update "
    "from which their rows of the embedding matrix have covered nine tenths of the way to their end, -.6 or less "
    "(threshold ours)",
    reads=_T21_READS,
    controls=(shuffled_deciles(_T21_READS),),
)
def t21(curves: Curves) -> list[Condition]:
    """When the embeddings of frequent and rare tokens settle."""
    found = frequency_correlation(curves["times"])
    name, unit = "frequency and the update from which nine tenths of the way are covered", "rank correlation"
    return [stays_below(name, found, -0.6, unit, bounds=CORRELATION, reach=reach_of_correlation(curves["times"]))]
