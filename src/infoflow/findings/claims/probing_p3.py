"""probing:P-3. Which word it is."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import OBJECTIVES
from .._probing import accuracy
from .._sources import LESSONS
from .._table import Reading, untrained

READS: dict[str, Reading] = {
    name: reading
    for objective in OBJECTIVES
    for name, reading in {
        objective.label: accuracy(objective, "word"),
        **untrained({f"{objective.label}, untrained": accuracy(objective, "word")}),
    }.items()
}


def _gap(curves: Curves, layer: int) -> list:
    return [curves[f"{one.label}, untrained"][:, [layer]] - curves[one.label][:, [layer]] for one in OBJECTIVES]


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(f"accuracy of word identity at the top, untrained less trained, {one.label}", gap, 0.0, "accuracy")
        for one, gap in zip(OBJECTIVES, _gap(curves, -1), strict=True)
    ]


def _bottom(curves: dict) -> dict:
    """Embeddings in place of the top: there both know the word."""
    return {name: curve[:, [0]] for name, curve in curves.items()}


FINDING = Finding(
    id="probing:P-3",
    claim="Models of random weights keep which word it is better than trained ones do, at the top.",
    source=LESSONS,
    published="random networks do better on word identity (unverified)",
    statistic="accuracy of a linear probe for the word at the top layer: untrained above trained, all three objectives",
    reads=READS,
    test=test,
    controls=(Control(name="embeddings", reads=READS, transform=_bottom),),
    learned=OBJECTIVES,
    minimum_seeds=1,
)
