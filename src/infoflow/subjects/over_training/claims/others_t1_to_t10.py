"""Claims about time: T1, T2, T3, T4, T5, T6, T7, T8, T10."""

import numpy as np

from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, claim, exceeds, stays_below
from infoflow.findings._model_group import CAUSAL
from infoflow.findings._readings import reach_at
from infoflow.findings._sources import (
    CHARACTERISTICS,
    CIRCUITS_OVER_TRAINING,
    CONVERGENCE_DYNAMICS,
    INDUCTION,
    NGRAM_STAGES,
    SAPHRA_AND_OURS,
    SUDDEN_DROPS,
    SVCCA_PAPER,
)
from infoflow.findings._table import Reading

from ._curves_over_time import (
    GAIN,
    at_once,
    frequency_correlation,
    gain_within,
    reach_of_correlation,
    shuffled_deciles,
    times_by_frequency,
)
from ._over_time import ngram_minima, role_sets, settled_share, settling_order
from ._probes_over_time import heads_with_the_loss, probe_times

KINDS = ("state", "block")


def reads(number: str = "time") -> dict[str, Reading]:
    return {kind: settling_order(CAUSAL, kind, number) for kind in KINDS}


def _order(name: str, curve: np.ndarray, least: float, **how: bool) -> Condition:
    return exceeds(name, curve[:, :1], least, "rank correlation", bounds=CORRELATION, reach=reach_at(curve, 1), **how)


@claim(
    "time:T1",
    "Lower layers settle first.",
    source=SVCCA_PAPER,
    published="networks converge from the bottom up; no number",
    statistic="debiased CKA to the final model: Kendall's tau of depth and the update from which nine tenths of the "
    "way are covered is at least .6 over states, and at least .3 over what blocks add to the final model's states, "
    "from the second block on (thresholds ours)",
    reads=reads(),
    controls=(Control(name="final weights with noise as large as the remaining distance", reads=reads("null_time")),),
)
def t1(curves: Curves) -> list[Condition]:
    """The order in which states settle, and in which blocks settle if they read the final model's states."""
    name = "Kendall's tau of depth and time of settling, {}s"
    return [
        # States accumulate the changes of all lower layers, so their order alone means nothing.
        _order(name.format("state"), curves["state"], 0.6, alone=False),
        _order(name.format("block"), curves["block"], 0.3),
    ]


SHARE = 0.2


@claim(
    "time:T2",
    "Most layers are close to their final state after a fifth of the training.",
    source=CONVERGENCE_DYNAMICS,
    published="nearly all layers of larger Pythia models stabilise within the first 20 % of training; small ones "
    "later and less stably",
    statistic="debiased CKA to the final states, as the share of the way from step 0, mean over layers at .2 of the "
    "updates: at least .8",
    reads={"done": settled_share(CAUSAL, SHARE)},
    controls=(
        Control(
            name="final weights with noise as large as the remaining distance",
            reads={"done": settled_share(CAUSAL, SHARE, number="null")},
        ),
        Control(
            name="another seed's final model, to which training does not lead",
            reads={"done": settled_share(CAUSAL, SHARE, reference="other-seed")},
        ),
    ),
)
def t2(curves: Curves) -> list[Condition]:
    """How far layers have come after a fifth of the training."""
    name = "share of the way to the final states after a fifth of the updates, mean over layers"
    return [exceeds(name, curves["done"], 0.8, "share of 1 - CKA at step 0")]


_T3_READS: dict[str, Reading] = {"times": times_by_frequency(CAUSAL)}


@claim(
    "time:T3",
    "Frequent tokens are learned first.",
    source=CHARACTERISTICS,
    published="sigmoid over log steps: n-gram curves of tokens; frequent ones earlier (published code)",
    statistic="deciles of the types by frequency in the training text: rank correlation of frequency and the update "
    "from which half of the gain over the tokens' unigram loss is reached, -.6 or less (threshold ours)",
    reads=_T3_READS,
    controls=(
        shuffled_deciles(_T3_READS),
        Control(
            name="the whole fall of the loss, which unigrams alone can explain",
            reads={"times": times_by_frequency(CAUSAL, raw=True)},
            decisive=False,
        ),
    ),
)
def t3(curves: Curves) -> list[Condition]:
    """When tokens of different frequency are learned."""
    found = frequency_correlation(curves["times"])
    name, unit = "frequency and the update at which half of the gain is reached", "rank correlation"
    return [stays_below(name, found, -0.6, unit, bounds=CORRELATION, reach=reach_of_correlation(curves["times"]))]


@claim(
    "time:T4",
    "A language model learns unigrams, then bigrams, then longer contexts.",
    source=NGRAM_STAGES,
    published="Pythia 70m: loss lowest on texts drawn from unigrams at 128 updates, from bigrams at 256; 12b: "
    "divergence lowest from unigrams (.889 nats) at 64, from bigrams (1.441) at 256",
    statistic="divergence of n-gram models of the training text from the model: the minimum comes first for unigrams, "
    "later for bigrams, and not before that for trigrams; the divergences from the first two rise again by over .1 "
    "nats",
    reads={"minima": ngram_minima(CAUSAL)},
    controls=(
        Control(
            name="a model that predicts uniformly", reads={"minima": ngram_minima(CAUSAL, "baseline")}, decisive=False
        ),
    ),
    uncontrolled="the divergence of a uniform model has no minimum, whatever was trained",
)
def t4(curves: Curves) -> list[Condition]:
    """The order of n-grams in learning."""
    later, latest, rise_1, rise_2 = (curves["minima"][:, [index]] for index in range(4))
    reach = [reach_at(curves["minima"], index) for index in range(4, 12, 2)]
    minimum, rise = "from the minimum of KL(Q{}||P) to that of Q{}", "rise of KL(Q{}||P) after its minimum"
    return [
        exceeds(minimum.format(1, 2), later, 0.0, "doublings of updates", reach=reach[0]),
        # The trigrams' minimum may coincide with the bigrams', at the same checkpoint.
        exceeds(minimum.format(2, 3), latest, -1e-9, "doublings of updates", alone=False, reach=reach[1]),
        exceeds(rise.format(1), rise_1, 0.1, "nats", reach=reach[2]),
        exceeds(rise.format(2), rise_2, 0.1, "nats", alone=False, reach=reach[3]),
    ]


TASKS = (("upos", "xpos"), ("arc-label", "deprel", "arc"), ("coreference",))


@claim(
    "time:T5",
    "Parts of speech are learned before dependencies, and dependencies before coreference.",
    source=SAPHRA_AND_OURS,
    published="parts of speech before topic in a language model; order of scores, no single number",
    statistic="linear probes trained at every checkpoint: half of the gain in accuracy over step 0, in "
    "the layer that is best at the end, comes first for parts of speech, then for dependencies, then for coreference",
    reads={"apart": probe_times(CAUSAL, *TASKS)},
    controls=(Control(name="control labels", reads={"apart": probe_times(CAUSAL, *TASKS, labels="control")}),),
)
def t5(curves: Curves) -> list[Condition]:
    """The order in which probes rise."""
    name, unit = "from the middle of the gain of {} to that of {}", "doublings of updates"
    apart = curves["apart"]
    steps = (("parts of speech", "dependencies"), ("dependencies", "coreference"))
    return [
        exceeds(name.format(*pair), apart[:, [at]], 0.0, unit, alone=False, reach=reach_at(apart, 2 + 2 * at))
        for at, pair in enumerate(steps)
    ]


@claim(
    "time:T6",
    "In a masked LM, heads of dependency relations appear abruptly, with a steep fall of the loss, before grammar is "
    "mastered.",
    source=SUDDEN_DROPS,
    published="heads for syntactic relations are acquired abruptly, with a steep drop of the loss, and grammar "
    "follows (abstract; at about 20,000 of 1,000,000 updates, grammar at 20,000 to 30,000: as summarised)",
    statistic="best heads of dependency relations: most of their curves are abrupt by the rules of the table "
    "`phases`; their median time lies between the two checkpoints with the steepest fall of the test loss, or up to "
    "half a doubling away; half of the gain in minimal pairs comes later (thresholds ours)",
    reads={"heads": heads_with_the_loss()},
    controls=(
        Control(
            name="heads that attend to fixed positions instead of heads of relations",
            reads={"heads": heads_with_the_loss(positions=True)},
        ),
    ),
)
def t6(curves: Curves) -> list[Condition]:
    """Syntactic heads, loss and grammar scores."""
    abrupt, apart, grammar = (curves["heads"][:, [index]] for index in range(3))
    reach = [reach_at(curves["heads"], place) for place in (4, 6, 8)]
    unit, relations = "doublings of updates", int(curves["heads"][0, 3])
    share, steepest = "share of relations whose best head appears abruptly", "the steepest fall of the loss"
    gain = "the middle of the gain in minimal pairs"
    return [
        exceeds(share, abrupt, 0.5, "share of curves", alone=False, of=relations, reach=reach[0]),
        stays_below(f"from the middle of these curves to {steepest}", apart, 0.5, unit, reach=reach[1]),
        exceeds(f"from the middle of these curves to {gain}", grammar, 0.0, unit, alone=False, reach=reach[2]),
    ]


@claim(
    "time:T7",
    "Induction heads and in-context learning appear abruptly and together.",
    source=INDUCTION,
    published="both in a window from 2.5 to 5 billion tokens, in models of two layers and more",
    statistic="best head's prefix matching on repeated tokens, and the gain of their second copy: both are abrupt by "
    "the rules of the table `phases`, and their middles are at most a doubling apart",
    reads={"both": at_once(CAUSAL, GAIN)},
    controls=(
        Control(
            name="heads that attend to the previous token instead of induction heads",
            reads={"both": at_once(CAUSAL, GAIN, "positional -1, best self head")},
        ),
    ),
)
def t7(curves: Curves) -> list[Condition]:
    """Whether induction heads and in-context learning appear abruptly and together."""
    abrupt, apart = (curves["both"][:, [index]] for index in range(2))
    reach = [reach_at(curves["both"], place) for place in (2, 4)]
    share, between = "share of seeds in which both appear abruptly", "the middle of induction and that of the gain"
    return [
        exceeds(share, abrupt, 0.5, "share of seeds", alone=False, of=1, reach=reach[0]),
        stays_below(f"between {between}", apart, 1.0, "doublings of updates", reach=reach[1]),
    ]


@claim(
    "time:T8",
    "Most in-context learning arises in the window in which induction heads appear.",
    source=INDUCTION,
    published="over three quarters of the score's change",
    statistic="share of the change of the gain on repeated tokens that falls between t10 and t90 of the best head's "
    "prefix matching: at least .75",
    reads={"share": gain_within(CAUSAL)},
    controls=(
        Control(name="the best other window of the same width", reads={"share": gain_within(CAUSAL, elsewhere=True)}),
    ),
)
def t8(curves: Curves) -> list[Condition]:
    """How much of in-context learning falls into the window in which induction heads appear."""
    name = "change of the gain between a tenth and nine tenths of induction"
    return [exceeds(name, curves["share"][:, :1], 0.75, "share of all change", reach=reach_at(curves["share"], 1))]


@claim(
    "time:T10",
    "Which heads have a role changes, while their number stays the same.",
    source=CIRCUITS_OVER_TRAINING,
    published="the heads that implement a component may change over time, while the algorithm stays the same; no "
    "number",
    statistic="roles that at least two heads hold at the end, once the number of these heads stays above .9 of the "
    "last one: it varies by less than a fifth, and the heads at neighbouring checkpoints overlap by less than .9 but "
    "over three times as much as random sets of these sizes; means over roles (thresholds ours)",
    reads={"roles": role_sets(CAUSAL)},
    controls=(
        Control(name="as many random heads", reads={"roles": role_sets(CAUSAL, "expected_previous")}, decisive=False),
    ),
    uncontrolled="the overlap is already divided by that of random sets",
)
def t10(curves: Curves) -> list[Condition]:
    """Heads that hold a role: their number stays the same, but the heads change."""
    spread, overlap, over_chance = (curves["roles"][:, [index]] for index in range(3))
    return [
        stays_below("spread of the number of heads, as a share of the last one", spread, 0.2, "share", alone=False),
        stays_below("overlap with the preceding checkpoint", overlap, 0.9, "Jaccard index", alone=False),
        exceeds("this overlap divided by that of random sets", over_chance, 3.0, "times"),
    ]
