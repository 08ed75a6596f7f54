"""Claims about feed-forward neurons: neurons:N1 to N6."""

import numpy as np

from infoflow.findings._control import seeds_alone
from infoflow.findings._curves import exceeds_others, spearman
from infoflow.findings._finding import CORRELATION, GAIN, SHARE, Condition, Curves, claim, exceeds
from infoflow.findings._model_group import CAUSAL, MASKED, TRANSLATION, Absent
from infoflow.findings._sources import OURS, Source
from infoflow.findings._table import Reading, SeedRows, Table, mean_number
from infoflow.results import Spec

from .measures import NEURONS_BY_LAYER
from .measures._tables import ACTIVE, DEAD, DETECTOR, POSITIONAL, SUPPRESSING

_NEURONS = Source(
    "Voita, Ferrando and Nalmpantis 2023, Neurons in Large Language Models: Dead, N-gram, Positional", "whole"
)
_OPT = "OPT models of 125M to 66B parameters, causal LMs with ReLU"


def _kind(kind: str, objective: Spec = CAUSAL) -> Table:
    return Table(NEURONS_BY_LAYER.name, objective).where(kind=kind)


def _first_half(curve: np.ndarray) -> np.ndarray:
    """Mean over the lower half of the layers minus that over the upper half; a middle layer is in neither."""
    half = curve.shape[1] // 2
    return curve[:, :half].mean(1, keepdims=True) - curve[:, -half:].mean(1, keepdims=True)


@claim(
    "neurons:N1",
    "A causal LM's dead neurons are in the first half of its layers.",
    source=_NEURONS,
    published=f"{_OPT}: the first half has a solid share of dead neurons, over 70 % in some layers of the "
    "66B model, and the second half none; the 350M model, with norms after the blocks, has none at all",
    statistic="share of neurons that are never active, mean over the lower half of the layers minus that over the "
    "upper half, above 0",
    reads={"dead": _kind(DEAD).by()},
)
def n1(curves: Curves) -> list[Condition]:
    """Condition on the causal LM's dead neurons in each layer."""
    values = _first_half(curves["dead"])
    return [exceeds("dead neurons in the lower half beyond the upper half", values, 0.0, "share", bounds=GAIN)]


def _over_detectors(rows: SeedRows) -> np.ndarray:
    """Share of detectors that suppress their triggers, and share of all tokens that they suppress, (1 + R, 2)."""
    sizes = rows.column("neurons")
    if sizes.sum() < _LEAST_DETECTORS:
        raise Absent(f"the causal LM has {int(sizes.sum())} token detectors, but {_LEAST_DETECTORS} are needed")
    control = np.broadcast_to(rows.column("baseline"), rows.numbers.shape)
    return np.stack([(part * sizes).sum(1) / sizes.sum() for part in (rows.numbers, control)], axis=1)


_LEAST_DETECTORS = 5


@claim(
    "neurons:N2",
    "Token detectors of a causal LM suppress the tokens that they detect.",
    source=_NEURONS,
    published=f"{_OPT}: the updates of over 80 % of token detectors point away from their triggers",
    statistic=f"share of token detectors (at least {_LEAST_DETECTORS}) whose update lowers the mean logit of their "
    "triggers, above one half and above the share of all tokens whose logits these updates lower",
    reads={
        "away": Table(NEURONS_BY_LAYER.name, CAUSAL, needs=("neurons", "baseline"), known=True)
        .where(kind=SUPPRESSING)
        .reduce(_over_detectors)
    },
    controls=(),
    uncontrolled="an untrained model has no token detectors, and the second condition compares them with all tokens",
)
def n2(curves: Curves) -> list[Condition]:
    """Conditions on the causal LM's detectors that suppress their triggers."""
    away, others = curves["away"][:, :1], curves["away"][:, 1:]
    return [
        exceeds("detectors that suppress their triggers", away, 0.5, "share", bounds=SHARE, published=0.8),
        exceeds("that share beyond the share of all tokens", away - others, 0.0, "share", bounds=GAIN),
    ]


def _beyond_control(rows: SeedRows) -> np.ndarray:
    """Values minus their control by layer, (1 + R, L)."""
    order = rows.column("layer").argsort()
    return rows.numbers[:, order] - rows.column("baseline")[order]


@claim(
    "neurons:N3",
    "Some neurons in the first half of a causal LM follow position, regardless of the text.",
    source=_NEURONS,
    published=f"{_OPT}: all have positional neurons, whose number rises twice, in the first third of the layers and "
    "above; the second layer of the 125M model has ten that together mark all positions",
    statistic="share of neurons with more than .05 nats of information about position, minus that of the same activity "
    "at the positions of other occurrences of the same token, above .01 in a layer of the lower half",
    reads={
        "gain": Table(NEURONS_BY_LAYER.name, CAUSAL, needs=("layer", "baseline"), known=True)
        .where(kind=POSITIONAL)
        .reduce(_beyond_control)
    },
)
def n3(curves: Curves) -> list[Condition]:
    """Condition on the causal LM's positional neurons in each layer."""
    gain = curves["gain"][:, : curves["gain"].shape[1] // 2]
    labels = [f"layer {layer}" for layer in range(gain.shape[1])]
    name = "positional neurons beyond those through the token alone"
    return [exceeds(name, gain, 0.01, "share", labels, over="any", bounds=GAIN)]


@claim(
    "neurons:N4",
    "The layers of a causal LM with the most dead neurons are those whose living neurons fire most rarely, and token "
    "detectors are in its first half.",
    source=_NEURONS,
    published=f"{_OPT}: the layers with the most dead neurons are those where living neurons activate most "
    "rarely; detectors were looked for in the first half, where the 66B model has most of its 5,351",
    statistic="rank correlation over layers of the share of dead neurons with the inactivity of living ones, above 0; "
    "share of token detectors, mean over the lower half of the layers minus that over the upper half, above 0",
    reads={"dead": _kind(DEAD).by(), "activity": _kind(ACTIVE).by(), "detectors": _kind(DETECTOR).by()},
)
def n4(curves: Curves) -> list[Condition]:
    """Conditions on how dead neurons, inactivity and detectors are distributed over the causal LM's layers."""
    correlation = spearman(curves["dead"], -curves["activity"])
    detectors = _first_half(curves["detectors"])
    return [
        exceeds("rank correlation of dead neurons and inactivity", correlation, 0.0, "1", bounds=CORRELATION),
        exceeds("detectors in the lower half beyond the upper half", detectors, 0.0, "share", bounds=GAIN),
    ]


def _of_all_layers(kind: str) -> dict[str, Reading]:
    """The share of neurons of this kind, averaged over layers, for each objective."""
    return {one.name: _kind(kind, one).reduce(mean_number) for one in (CAUSAL, MASKED, TRANSLATION)}


_SEEN = "none: the source studies causal LMs; seen in the seeds 31 to 33 of experiments/studies/after-the-seeds"
_DEAD, _POSITIONAL = _of_all_layers(DEAD), _of_all_layers(POSITIONAL)


@claim(
    "neurons:N5",
    "A translation encoder has more dead neurons than language models.",
    source=OURS,
    published=_SEEN,
    statistic="share of neurons that are never active, averaged over layers: translation encoder minus causal LM, and "
    "translation encoder minus masked LM, both above 0",
    reads=_DEAD,
    controls=(seeds_alone(_DEAD, "translation", "causal-lm", "masked-lm"),),
)
def n5(curves: Curves) -> list[Condition]:
    """Conditions that compare dead neurons between objectives."""
    return exceeds_others("dead neurons beyond those of the", curves, TRANSLATION, (CAUSAL, MASKED))


@claim(
    "neurons:N6",
    "Most neurons that follow position are in a masked LM, fewer in a causal LM, and the fewest in a translation "
    "encoder.",
    source=OURS,
    published=_SEEN,
    statistic="share of neurons with more than .05 nats of information about position, averaged over layers: masked "
    "LM minus causal LM, and causal LM minus translation encoder, both above 0",
    reads=_POSITIONAL,
    controls=(seeds_alone(_POSITIONAL, "masked-lm", "causal-lm", "translation"),),
)
def n6(curves: Curves) -> list[Condition]:
    """Conditions that compare neurons that follow position between objectives."""
    gaps = {
        "masked LM beyond the causal LM": curves[MASKED.name] - curves[CAUSAL.name],
        "causal LM beyond the translation encoder": curves[CAUSAL.name] - curves[TRANSLATION.name],
    }
    return [exceeds(f"positional neurons, {name}", gap, 0.0, "share", bounds=GAIN) for name, gap in gaps.items()]
