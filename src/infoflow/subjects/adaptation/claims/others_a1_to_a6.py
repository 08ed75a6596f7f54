"""Claims about adaptation: A1, A2, A3, A4, A5, A6."""

import numpy as np

from infoflow.findings._curves import total_fall
from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, claim, exceeds, stays_below
from infoflow.findings._model_group import MASKED
from infoflow.findings._sources import FEW_LABELS, LEGAL_BERT_PAPER, SCIBERT_PAPER, TUNING_INSIDE
from infoflow.findings._table import Reading, Table, baselines, untrained

from ._adaptation import (
    CONTINUED,
    FROZEN,
    FULL,
    IN_DOMAIN,
    SCRATCH,
    SHUFFLED,
    change,
    gain_by_size,
    means,
    no_gain_by_size,
    order_of_halves,
    order_of_strategies,
    tuned,
)

_A1_READS: dict[str, Reading] = {"change": change(MASKED)}


@claim(
    "adaptation:A-1",
    "Fine-tuning changes the upper layers most.",
    source=TUNING_INSIDE,
    published="fine-tuning primarily affects the top layers, with noteworthy variation across tasks (no number)",
    statistic="1 − PWCCA of a layer's space before and after tuning in full, mean over tasks: the upper half of the "
    "layers above the lower half",
    reads=_A1_READS,
    controls=(
        Control(name="untrained model, tuned", reads=untrained(_A1_READS)),
        Control(name="shuffled labels", reads={"change": change(MASKED, SHUFFLED)}, decisive=False),
        Control(name="two tuning seeds instead of before and after", reads=baselines(_A1_READS), decisive=False),
    ),
    minimum_seeds=1,
)
def a1(curves: Curves) -> list[Condition]:
    distance = curves["change"]
    half = distance.shape[1] // 2
    lower, upper = (part.mean(axis=1, keepdims=True) for part in (distance[:, :half], distance[:, -half:]))
    return [
        exceeds("distance of upper layers before and after tuning, minus that of lower ones", upper - lower, 0.0, "")
    ]


_UNTRAINED, _MIXED_UP = tuned(MASKED, trained=False), tuned(MASKED, control=SHUFFLED)


def _reads(general: Table, domain: Table) -> dict[str, Reading]:
    """Full tuning without and with pretraining on the domain, and frozen features."""
    return {
        "general": means(general, tuned(MASKED, FROZEN)),
        "domain": means(domain, tuned(MASKED, FROZEN, IN_DOMAIN)),
    }


@claim(
    "adaptation:A-2",
    "Fine-tuning beats frozen features, both for a general model and for one pretrained on the domain.",
    source=SCIBERT_PAPER,
    published="mean F1, frozen and fine-tuned: BERT 73.58 and 77.16, SciBERT 76.01 and 79.27 (gains of 3.58 and 3.26; "
    "recalled, not read)",
    statistic="main test metric, mean over tasks: full fine-tuning scores above a head on frozen features, both for "
    "the general model and after pretraining on the domain (continued, otherwise from scratch)",
    reads=_reads(tuned(MASKED), tuned(MASKED, FULL, IN_DOMAIN)),
    controls=(
        Control(name="untrained model, fully tuned, against the frozen features", reads=_reads(_UNTRAINED, _UNTRAINED)),
        Control(name="shuffled labels, fully tuned, against the frozen features", reads=_reads(_MIXED_UP, _MIXED_UP)),
    ),
)
def a2(curves: Curves) -> list[Condition]:
    """In the source's averages, tuning gains about as much after pretraining on the domain (3.26 points) as without
    it (3.58).
    """
    general, domain = (total_fall(curves[name]) for name in ("general", "domain"))
    return [
        exceeds(
            "score of tuning in full minus that of frozen features",
            np.concatenate([general, domain], axis=1),
            0.0,
            "score",
            ["the model as it is", "after pretraining on the domain"],
            published=0.0326,
        )
    ]


@claim(
    "adaptation:A-3",
    "Pretraining on in-domain text helps in-domain tasks.",
    source=SCIBERT_PAPER,
    published="mean F1, fine-tuned: 77.16 with BERT, 79.27 with SciBERT (recalled, not read)",
    statistic="main test metric after full fine-tuning, mean over tasks: with pretraining on the domain (continued, "
    "otherwise from scratch) above the general model",
    reads={"domain and general": means(tuned(MASKED, FULL, IN_DOMAIN), tuned(MASKED))},
    controls=(
        Control(
            name="untrained model instead of the in-domain model",
            reads={"domain and general": means(tuned(MASKED, trained=False), tuned(MASKED))},
        ),
        Control(
            name="shuffled labels in place of the domain",
            reads={"domain and general": means(tuned(MASKED, control=SHUFFLED), tuned(MASKED))},
        ),
    ),
)
def a3(curves: Curves) -> list[Condition]:
    gain = total_fall(curves["domain and general"])
    return [exceeds("score with pretraining on the domain minus that without", gain, 0.0, "score", published=0.0211)]


WAYS = ("continued", "from scratch on the domain")


def _a4_reads(*ways: Table) -> dict[str, Reading]:
    return {name: means(way, tuned(MASKED)) for name, way in zip(WAYS, ways, strict=True)}


@claim(
    "adaptation:A-4",
    "A model trained further on the domain and a model trained only on the domain both beat the general model.",
    source=LEGAL_BERT_PAPER,
    published="both beat BERT out of the box, most where tasks are hard (up to 2.5 points; recalled, not read)",
    statistic="main test metric after full fine-tuning, mean over tasks: both strategies above the general model",
    reads=_a4_reads(tuned(MASKED, FULL, CONTINUED), tuned(MASKED, FULL, SCRATCH)),
    controls=(
        Control(name="untrained model in place of both", reads=_a4_reads(*[tuned(MASKED, trained=False)] * 2)),
        Control(name="shuffled labels in place of both", reads=_a4_reads(*[tuned(MASKED, control=SHUFFLED)] * 2)),
    ),
)
def a4(curves: Curves) -> list[Condition]:
    """As we recall, both strategies won on each task in the source, which gives the differences by task."""
    return [
        exceeds(f"score of the model {name} minus that of the model as it is", total_fall(curves[name]), 0.0, "score")
        for name in WAYS
    ]


MOST = 0.9


@claim(
    "adaptation:A-5",
    "Perplexity on in-domain text does not predict the ranking on end tasks.",
    source=LEGAL_BERT_PAPER,
    published="the variants with the lowest perplexity do not have the best end-task scores (recalled, not read)",
    statistic="Spearman's correlation of the mean task score with the negative loss per word of domain text, over the "
    f"general, the continued and the from-scratch model: below {MOST} (our threshold)",
    reads={"order": order_of_strategies(MASKED)},
    controls=(
        Control(name="scores under other tuning seeds instead of the loss", reads={"order": order_of_halves(MASKED)}),
    ),
)
def a5(curves: Curves) -> list[Condition]:
    """If the order of the strategies by score changes with the tuning seeds, there is no order to predict, and the
    claim stays undetermined.
    """
    name = "rank correlation over strategies between task score and negative loss on domain text"
    return [stays_below(name, curves["order"], MOST, "", bounds=CORRELATION)]


@claim(
    "adaptation:A-6",
    "The more labelled examples there are, the less pretraining helps.",
    source=FEW_LABELS,
    published="100 labelled examples with pretraining match 100 times as many without (recalled, not read)",
    statistic="main test metric after full fine-tuning, pretrained minus untrained model, mean over tasks: larger with "
    "the fewest labelled examples than with the most",
    reads={"gain": gain_by_size(MASKED)},
    controls=(
        Control(
            name="untrained model instead of the pretrained one, other tuning seeds",
            reads={"gain": no_gain_by_size(MASKED)},
        ),
    ),
)
def a6(curves: Curves) -> list[Condition]:
    gain = curves["gain"]
    more = "gain of pretraining with fewest labelled examples minus that with most"
    return [
        exceeds(more, total_fall(gain), 0.0, "score"),
        exceeds("gain of pretraining with fewest labelled examples", gain[:, :1], 0.0, "score", alone=False),
    ]
