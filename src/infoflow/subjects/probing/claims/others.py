"""Claims about probing: P1 to P6."""

from functools import partial

from infoflow.findings._curves import layer_names
from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, Finding, Given, Verdict, claim, exceeds
from infoflow.findings._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from infoflow.findings._readings import TOKEN_TASKS, WHOLE, accuracy
from infoflow.findings._sources import (
    BERT_SCORE,
    CONTROL_TASKS,
    HIERARCHICAL_SYNTAX,
    LESSONS,
    LESSONS_ON_WORDS,
    STRUCTURAL_PROBE,
)
from infoflow.findings._table import Reading, Table, untrained
from infoflow.results import Spec

from ..measures import BERT_SCORE as BERT_SCORE_TABLE
from ._readings import at_best, trees


@claim(
    "probing:P-1",
    "A linear probe is less selective on the embeddings than on some contextual layer, because word identity also lets "
    "the probe learn random labels of word types.",
    source=CONTROL_TASKS,
    published="layer 0 has the lowest selectivity of ELMo's layers",
    statistic="accuracy of a linear probe on the task minus that on the control task: some layer lies above layer 0",
    reads={"selectivity": accuracy(MASKED, TOKEN_TASKS, metric="selectivity")},
    given=Given(),
)
def p1(curves: Curves) -> list[Condition]:
    selectivity = curves["selectivity"]
    return [
        exceeds(
            "highest selectivity of a contextual layer above that of layer 0",
            (selectivity[:, 1:] - selectivity[:, :1]),
            0.0,
            "accuracy",
            [f"layer {layer}" for layer in range(1, selectivity.shape[1])],
            over="any",
        )
    ]


SMALL = 0.01


def _reads(labels: str) -> dict[str, Reading]:
    found = {}
    for name, share in (("few", SMALL), ("all", WHOLE)):
        reading = at_best(MASKED, TOKEN_TASKS, share, labels=labels)
        found |= {f"trained, {name}": reading, **untrained({f"untrained, {name}": reading})}
    return found


@claim(
    "probing:P-2",
    "The benefit of pretraining shows when a probe has little training data.",
    source=LESSONS,
    published="frozen LSTMs with random weights do strikingly well, an effect that disappears with less training data "
    "(no number)",
    statistic=f"accuracy of the best layer, trained minus untrained: larger with {SMALL:.0%} of the probe's training "
    "sentences than with all",
    reads=_reads("task"),
    controls=(Control("control task", _reads("control")),),
    given=Given(),
)
def p2(curves: Curves) -> list[Condition]:
    few, whole = (curves[f"trained, {name}"] - curves[f"untrained, {name}"] for name in ("few", "all"))
    return [
        exceeds(
            f"gain of training with {SMALL:.0%} of the probe's data above that with all", few - whole, 0.0, "accuracy"
        )
    ]


@claim(
    "probing:P-4",
    "Dependency trees lie in the geometry of a masked LM's states, up to a linear map.",
    source=STRUCTURAL_PROBE,
    cause="In SmolLM2 the probe itself failed: its training does not cope with states whose dimensions have very "
    "unequal scales.",
    examined="probing",
    published="undirected attachment of BERT-large 82.5 against 48.9 for a chain and 26.8 at layer 0 of ELMo "
    "(unverified)",
    statistic="structural probe: some contextual layer lies five points of undirected attachment above a chain of "
    "words, and above layer 0 in attachment and in rank correlation of distances",
    reads={
        "uuas": trees(MASKED, "uuas"),
        "spearman": trees(MASKED, "spearman"),
        "beyond": trees(MASKED, "uuas", beyond_chain=True),
    },
    given=Given(),
)
def p4(curves: Curves) -> list[Condition]:
    uuas, spearman = curves["uuas"], curves["spearman"]
    names = layer_names(uuas.shape[1] - 1, 1)
    return [
        exceeds(
            "edges of a contextual layer beyond those of a chain of neighbours",
            curves["beyond"][:, 1:],
            0.05,
            "share of edges",
            names,
            over="any",
        ),
        exceeds("edges beyond layer 0", uuas[:, 1:] - uuas[:, :1], 0.0, "share of edges", names, over="any"),
        exceeds(
            "rank correlation of distances beyond layer 0",
            spearman[:, 1:] - spearman[:, :1],
            0.0,
            "",
            names,
            over="any",
        ),
    ]


FEWEST = 4


def _agreement(labels: str) -> Reading:
    """Correlation of BERTScore's F with human scores, for layers 0..L."""
    return Table(BERT_SCORE_TABLE.name, MASKED).where(score="f", labels=labels).by(first=0)


_P5_READS: dict[str, Reading] = {"correlation": _agreement("human")}


def too_shallow(curves: Curves, verdict: Verdict) -> str | None:
    """Report that the model is too shallow, since the claim is about models of at least `FEWEST` layers."""
    layers = curves["correlation"].shape[1] - 1
    return f"it concerns encoders of {FEWEST} layers or more, and this one has {layers}" if layers < FEWEST else None


@claim(
    "probing:P-5",
    "BERTScore agrees best with human scores in a layer below the top.",
    source=BERT_SCORE,
    published="best layers: BERT-base 9 of 12, BERT-large 18 of 24, RoBERTa-large 17 of 24; but BART-base 6 of 6",
    statistic="Pearson's correlation of BERTScore (F) with human scores of the same pairs: some lower layer lies above "
    f"the top layer; only for encoders of {FEWEST} layers or more",
    reads=_P5_READS,
    controls=(
        Control("permuted human scores", {"correlation": _agreement("permuted")}),
        Control("untrained model", untrained(_P5_READS), decisive=False),
    ),
    hinders=too_shallow,
    given=Given(tasks=("encoder", "masked-lm")),
)
def p5(curves: Curves) -> list[Condition]:
    found = curves["correlation"]
    return [
        exceeds(
            "correlation with human scores of a layer below the top, minus that of the top",
            found[:, :-1] - found[:, -1:],
            0.0,
            "correlation",
            layer_names(found.shape[1] - 1, 0),
            over="any",
            bounds=(2 * CORRELATION[0], 2 * CORRELATION[1]),
        )
    ]


TASKS = ("grandparent", "parent")


@claim(
    "probing:P-6",
    "In a translation encoder, higher layers encode more about a word's constituents; in a language model, this rises "
    "and then falls.",
    source=HIERARCHICAL_SYNTAX,
    published="translation rises to its top layer, language models are best in the middle (unverified)",
    statistic="linear probe for the label of the constituent two levels up (a subtree of the dependency tree here): "
    "the causal LM's top lies below its best layer, and the translation encoder's top is its best layer",
    reads={"causal LM": accuracy(CAUSAL, TASKS), "translation": accuracy(TRANSLATION, TASKS)},
)
def p6(curves: Curves) -> list[Condition]:
    causal, translation = curves["causal LM"], curves["translation"]
    names = layer_names(causal.shape[1] - 1, 0)
    return [
        exceeds(
            "causal LM: some layer above the top",
            causal[:, :-1] - causal[:, -1:],
            0.0,
            "accuracy",
            names,
            over="any",
            alone=False,
        ),
        exceeds(
            "translation: the top above all other layers",
            translation[:, -1:] - translation[:, :-1],
            0.0,
            "accuracy",
            names,
        ),
    ]


def _reads_identity(objectives: tuple[Spec, ...]) -> dict[str, Reading]:
    return {
        name: reading
        for objective in objectives
        for name, reading in {
            objective.label: accuracy(objective, "word"),
            **untrained({f"{objective.label}, untrained": accuracy(objective, "word")}),
        }.items()
    }


def test(curves: Curves, objectives: tuple[Spec, ...]) -> list[Condition]:
    gaps = [curves[f"{one.label}, untrained"][:, [-1]] - curves[one.label][:, [-1]] for one in objectives]
    of = [f", {one.label}" if len(objectives) > 1 else "" for one in objectives]
    return [
        exceeds(f"accuracy of word identity at the top, untrained minus trained{which}", gap, 0.0, "accuracy")
        for which, gap in zip(of, gaps, strict=True)
    ]


def _finding(objectives: tuple[Spec, ...], models: str, given: Given | None = None) -> Finding:
    reads = _reads_identity(objectives)
    return Finding(
        id="probing:P-3",
        claim="At the top layer, models with random weights preserve word identity better than trained models.",
        source=LESSONS_ON_WORDS,
        published="random networks do better on word identity (unverified)",
        statistic=f"accuracy of a linear probe for the word at the top layer: untrained lies above trained, {models}",
        reads=reads,
        test=partial(test, objectives=objectives),
        # embeddings, in which both models represent the word, in place of the top
        controls=(Control("embeddings", reads, lambda curves: {one: curve[:, [0]] for one, curve in curves.items()}),),
        learned=objectives,
        given=given,
        minimum_seeds=1,
    )


FINDING = _finding(OBJECTIVES, "all three objectives", Given(finding=_finding((MASKED,), "of the model given")))
