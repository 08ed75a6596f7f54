"""Claims about representations: V18, Z1, Z2, Z-5, Z-6; and about context: E1, E2."""

from dataclasses import replace

import numpy as np

from infoflow.representations import CONVERGED

from .._control import seeds_alone
from .._curves import depth_correlation, geometry, identity, information, layer_names, step_names
from .._finding import CORRELATION, NO_CAUSE, Condition, Control, Curves, claim, exceeds, stays_below
from .._model_group import CAUSAL, MASKED, NAMES, OBJECTIVES, TRANSLATION
from .._readings import DECODER, ENCODER, how_closed, lost_share, some_retrained, untrained_share
from .._sources import ENCODER_SPACES, GEOMETRY, LESSONS_ON_WORDS, OURS
from .._table import Reading, baselines, untrained
from .._two_estimates import also_by, of_usable_information

_V18_READS = untrained({NAMES[o]: identity(o) for o in OBJECTIVES})


TRAINED = identity(CAUSAL)


@claim(
    "representations:V-18",
    "An untrained network keeps the identity of its tokens through all its layers.",
    source=LESSONS_ON_WORDS,
    published="no number for this measure; a trained causal LM falls from .992 to .768",
    statistic="share of the 50 nearest neighbours that are the same token, untrained models: no layer lies .02 or "
    "more below layer 1",
    reads=_V18_READS,
    controls=(Control("trained causal LM, which must lose it", dict.fromkeys(_V18_READS, TRAINED)),),
    learned=(CAUSAL,),
    minimum_seeds=1,
)
def v18(curves: Curves) -> list[Condition]:
    """The curves cover layers 1..L."""
    losses = {name: curve[:, :1] - curve[:, 1:] for name, curve in curves.items()}
    layers = layer_names(next(iter(losses.values())).shape[1], 2)
    return [
        stays_below(
            "loss of identity neighbours from layer 1, untrained",
            np.concatenate(list(losses.values()), axis=1),
            0.02,
            "share of neighbours",
            [f"{layer}, {name}" for name in losses for layer in layers],
        )
    ]


_V18_USABLE = of_usable_information(untrained({NAMES[o]: information(o, "input") for o in OBJECTIVES}))
_TRAINED_USABLE = of_usable_information({"trained": information(CAUSAL, "input")})["trained"]


def _loss_of_usable_information(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L."""
    losses = {name: curve[:, :1] - curve[:, 1:] for name, curve in curves.items()}
    layers = layer_names(next(iter(losses.values())).shape[1], 1)
    return [
        stays_below(
            "loss of usable information from layer 0, untrained",
            np.concatenate(list(losses.values()), axis=1),
            CONVERGED,
            "nats",
            [f"{layer}, {name}" for name in losses for layer in layers],
        )
    ]


v18 = also_by(
    v18,
    "identity neighbours",
    replace(
        v18,
        reads=_V18_USABLE,
        controls=(Control("trained causal LM, which must lose it", dict.fromkeys(_V18_USABLE, _TRAINED_USABLE)),),
        statistic=f"untrained models: no layer lies {CONVERGED} nats or more below layer 0",
        test=_loss_of_usable_information,
    ),
)


_Z1_READS = {"masked": geometry(MASKED, "average_similarity")}


@claim(
    "representations:Z-1",
    "In a masked LM, the states of random words become more alike from layer to layer, except at the last layer, "
    "where they move apart again.",
    source=GEOMETRY,
    cause="The last norm: without its gain and bias, the states of the last layer move apart. In short training runs, "
    "BERT's output head hides this as well (plain-head).",
    examined="reasons",
    published="BERT-base, layers 0 to 12: .105 .168 .219 .245 .327 .377 .420 .398 .399 .484 .561 .675 .477; the "
    "study's masked LM stands in for BERT",
    statistic="mean cosine of random word occurrences, masked LM: Spearman correlation with depth over layers 0..L−1 "
    "above .8, and a fall of over .05 at the last layer",
    reads=_Z1_READS,
    controls=(
        Control("isotropic Gaussian", baselines(_Z1_READS)),
        Control("untrained model", untrained(_Z1_READS)),
        Control(
            "Spearman's correlation in place of the cosine",
            {"masked": geometry(MASKED, "average_similarity", space="rank")},
            decisive=False,
        ),
    ),
    minimum_seeds=1,
)
def z1(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L; the study's masked LM stands in for BERT."""
    curve = curves["masked"]
    return [
        exceeds(
            "rank correlation of average similarity with depth, without the last layer",
            depth_correlation(curve[:, :-1]),
            0.8,
            "Spearman's rho",
            published=0.979,
            bounds=CORRELATION,
        ),
        exceeds(
            "fall of average similarity at the last layer",
            curve[:, -2:-1] - curve[:, -1:],
            0.05,
            "cosine",
            published=0.198,
        ),
    ]


LANGUAGE_MODELS = (MASKED, CAUSAL)


def _reads(measure: str) -> dict[str, Reading]:
    names = {"self": measure, "average": "average_similarity"}
    return {f"{o.name} {name}": geometry(o, each) for o in LANGUAGE_MODELS for name, each in names.items()}


_Z2_READS = _reads("self_similarity")


@claim(
    "representations:Z-2",
    "With depth, the occurrences of a word become less alike relative to random words.",
    source=GEOMETRY,
    cause="Positions and the last norm's gain and bias: without them, occurrences do differ more at the top, but not "
    "more from each layer to the next.",
    examined="reasons",
    published="self-similarity minus average similarity, layers 0 and 11: BERT-base .849 and .164, GPT-2 .306 and "
    ".129; the study's masked and causal LM stand in for them",
    statistic="mean cosine within words minus mean cosine of random occurrences: Spearman correlation with depth over "
    "layers 0..L−1 below −.8, and a fall of over .05 (a quarter of the smaller published one), in both language models",
    reads=_Z2_READS,
    controls=(
        Control("shuffled words", _reads("shuffled_self_similarity")),
        # Random attention mixes words too, so this is not a null of the claim; it shows the contribution of training.
        Control("untrained models", untrained(_Z2_READS), decisive=False),
    ),
    minimum_seeds=1,
)
def z2(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L; the study's masked and causal LM stand in for BERT and GPT-2."""
    corrected = [(curves[f"{o.name} self"] - curves[f"{o.name} average"])[:, :-1] for o in LANGUAGE_MODELS]
    names = [NAMES[o] for o in LANGUAGE_MODELS]
    return [
        stays_below(
            "rank correlation of corrected self-similarity with depth, without the last layer",
            np.concatenate([depth_correlation(curve) for curve in corrected], axis=1),
            -0.8,
            "Spearman's rho",
            names,
            published=-0.923,
            bounds=CORRELATION,
        ),
        exceeds(
            "fall of corrected self-similarity from layer 0 to the last layer but one",
            np.concatenate([curve[:, :1] - curve[:, -1:] for curve in corrected], axis=1),
            0.05,
            "cosine",
            names,
            published=0.177,
        ),
    ]


_Z5_READS = {o.name: geometry(o, "average_similarity") for o in (TRANSLATION, MASKED)}


@claim(
    "representations:Z-5",
    "The embeddings of a translation encoder are more alike than those of a masked LM.",
    source=ENCODER_SPACES,
    cause=NO_CAUSE,
    examined="reasons",
    published="no number: the figure that shows it is not readable. The source compares a pretrained BERT with a "
    "translation encoder trained on other data; here both models share data, tokens and initialisation",
    statistic="mean cosine of random word occurrences at layer 0: over .05 higher in the translation encoder than in "
    "the masked LM",
    reads=_Z5_READS,
    controls=(
        seeds_alone(_Z5_READS, "translation", "masked-lm"),
        Control("isotropic Gaussian", baselines(_Z5_READS)),
        Control("untrained models", untrained(_Z5_READS)),
    ),
)
def z5(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "average similarity of the translation encoder's embeddings minus that of the masked LM's",
            curves["translation"][:, :1] - curves["masked-lm"][:, :1],
            0.05,
            "cosine",
        )
    ]


_Z6_READS = {"translation": geometry(TRANSLATION, "average_similarity")}


_RATIO = 1.5


@claim(
    "representations:Z-6",
    "In a translation encoder the states of random words become alike abruptly, at the last layer; in a masked LM they "
    "do so gradually.",
    source=ENCODER_SPACES,
    cause=NO_CAUSE,
    examined="reasons",
    published="no number: the figure that shows it is not readable",
    statistic="mean cosine of random word occurrences, translation encoder: it rises at the last layer, by over 1.5 "
    "times its largest rise at an earlier one; the masked LM does not meet this",
    reads=_Z6_READS,
    controls=(
        Control("masked LM", {"translation": geometry(MASKED, "average_similarity")}),
        Control("untrained model", untrained(_Z6_READS)),
    ),
    learned=(TRANSLATION, MASKED),
)
def z6(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L.

    The statistic is a difference, not a ratio, because an earlier rise may be zero or negative, and the last rise must
    exceed it in that case too.
    """
    steps = np.diff(curves["translation"], axis=1)
    earlier, last = steps[:, :-1], steps[:, -1:]
    return [
        exceeds(
            f"rise at the last layer, alone and minus {_RATIO} times each earlier rise",
            np.concatenate([last, last - _RATIO * earlier], axis=1),
            0.0,
            "cosine",
            ["alone", *step_names(earlier.shape[1], 0)],
        )
    ]


LEAST = 0.10


@claim(
    "context:E1",
    "The encoder of a translation model provides context that the task needs: closing its self-attention costs "
    f"at least {LEAST:.0%} of what the model has learned beyond unigram frequencies (our threshold).",
    source=OURS,
    cause="A decoder that attends to words without context translates short sentences nearly as well. On sentences of "
    "25 words .08 was lost, and 14 to 16 BLEU.",
    examined="paper",
    published="no published number; the threshold is ours",
    statistic="loss with the encoder's self-attention closed in all blocks minus the loss with it open, as a share of "
    f"the unigram loss minus the loss with it open: at least {LEAST}. Models trained further with closed attention are "
    "compared with models trained for as long with open attention; without these, it is closed at test time",
    reads={"share": lost_share(ENCODER)},
    controls=(
        Control(
            "untrained model, closed at test time (as a share of what the trained one has learned)",
            {"share": untrained_share(ENCODER)},
        ),
    ),
    hinders=some_retrained,
    minimum_seeds=1,
)
def e1(curves: Curves) -> list[Condition]:
    """What it costs to close a translation model's encoder self-attention, so that each token sees only itself."""
    share = curves["share"]
    return [
        exceeds(
            f"share of what the model has learned that is lost with the encoder's self-attention {how_closed(share)}",
            share[:, :1],
            LEAST,
            "share of what is learned",
        )
    ]


@claim(
    "context:E2",
    "In a translation model, the encoder provides the context: more of what the model has learned depends on the "
    "encoder's self-attention than on the decoder's (our threshold: a difference above 0).",
    source=OURS,
    published="no published number; that any difference above 0 counts is our choice",
    statistic="share of what the model has learned beyond unigram frequencies that is lost with the encoder's "
    "self-attention closed in all blocks, minus the share lost with the decoder's closed: above 0. Models trained "
    "further with closed attention are compared with models trained for as long with open attention; without these, it "
    "is closed at test time",
    reads={"difference": lost_share(ENCODER, less=DECODER)},
    controls=(
        Control(
            "untrained model, closed at test time (as a share of what the trained one has learned)",
            {"difference": untrained_share(ENCODER, less=DECODER)},
        ),
    ),
    hinders=some_retrained,
    minimum_seeds=1,
)
def e2(curves: Curves) -> list[Condition]:
    difference = curves["difference"]
    return [
        exceeds(
            "share of what the model has learned that depends on the encoder's self-attention, minus the share that "
            f"depends on the decoder's, each {how_closed(difference)}",
            difference[:, :1],
            0.0,
            "share of what is learned",
        )
    ]
