"""probing:P-3. Word identity."""

from functools import partial

from infoflow.results import Spec

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED, OBJECTIVES
from .._probing import accuracy
from .._sources import LESSONS_ON_WORDS
from .._table import Reading, untrained


def _reads(objectives: tuple[Spec, ...]) -> dict[str, Reading]:
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
        exceeds(f"accuracy of word identity at the top, untrained less trained{which}", gap, 0.0, "accuracy")
        for which, gap in zip(of, gaps, strict=True)
    ]


def _bottom(curves: dict) -> dict:
    """Embeddings in place of the top, where both models represent the word."""
    return {name: curve[:, [0]] for name, curve in curves.items()}


def _finding(objectives: tuple[Spec, ...], models: str, given: Given | None = None) -> Finding:
    reads = _reads(objectives)
    return Finding(
        id="probing:P-3",
        claim="At the top layer, models with random weights preserve word identity better than trained models.",
        source=LESSONS_ON_WORDS,
        published="random networks do better on word identity (unverified)",
        statistic=f"accuracy of a linear probe for the word at the top layer: untrained above trained, {models}",
        reads=reads,
        test=partial(test, objectives=objectives),
        controls=(Control(name="embeddings", reads=reads, transform=_bottom),),
        learned=objectives,
        given=given,
        minimum_seeds=1,
    )


FINDING = _finding(OBJECTIVES, "all three objectives", Given(finding=_finding((MASKED,), "of the model given")))
