"""The measures that a study and `infoflow analyze` run unless told otherwise."""

from collections.abc import Sequence

from infoflow.flow import AbstractMeasure, PairMeasure
from infoflow.foundation import UserError
from infoflow.heads import (
    Confidence,
    Entropy,
    PatternScores,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    Relevance,
    SurfaceStatistics,
    TellingSentences,
)
from infoflow.representations import (
    ChangeByFrequency,
    ContextNeighbours,
    DistanceDistribution,
    IdentityNeighbours,
    InfluenceByFrequency,
    IntraSentence,
    IntrinsicDimension,
    LayerDistance,
    Lens,
    ModelDistance,
    MutualInformation,
    PositionNeighbours,
    SpaceSimilarity,
    TagNeighbours,
    TokenMap,
    WordGeometry,
)

from ._plan import AnalysisPlan


def standard_measures(plan: AnalysisPlan) -> list[AbstractMeasure]:
    """Every measure of one model."""
    information = {
        "clusters": plan.clusters,
        "types": plan.types,
        "occurrences": plan.occurrences,
        "clusterings": plan.clusterings,
    }
    return [
        MutualInformation(**information),
        MutualInformation(**information, regime="training"),
        LayerDistance(occurrences=plan.distance_occurrences),
        ChangeByFrequency(per_bin=plan.frequency_occurrences),
        InfluenceByFrequency(per_bin=plan.frequency_occurrences),
        IdentityNeighbours(k=plan.neighbours, occurrences=plan.neighbour_occurrences),
        PositionNeighbours(k=plan.neighbours),
        ContextNeighbours(k=plan.neighbours),
        TagNeighbours(k=plan.neighbours),
        TokenMap(),
        WordGeometry(),
        IntraSentence(),
        IntrinsicDimension(),
        DistanceDistribution(),
        Lens(steps=plan.lens_steps, tokens=plan.lens_tokens),
        Confidence(),
        Entropy(),
        PositionalScores(offsets=(-2, -1, 1, 2)),
        SurfaceStatistics(),
        TellingSentences(),
        RelationScores(),
        RareTokenScores(),
        PatternScores(),
        Relevance(),
    ]


def measures_by_table(measures: Sequence[AbstractMeasure]) -> dict[str, list[AbstractMeasure]]:
    """The measures by the name of their table; several may write one."""
    tables: dict[str, list[AbstractMeasure]] = {}
    for measure in measures:
        tables.setdefault(measure.name, []).append(measure)
    return tables


def pair_measures(plan: AnalysisPlan) -> list[PairMeasure]:
    """Every measure of two models."""
    return [
        ModelDistance(occurrences=plan.distance_occurrences),
        SpaceSimilarity(occurrences=plan.distance_occurrences),
    ]


def choose(measures: Sequence[AbstractMeasure], only: Sequence[str]) -> list[AbstractMeasure]:
    """The measures whose tables are named in `only`; all where it is empty.

    Raises:
        UserError: A name is unknown.
    """
    names = list(dict.fromkeys(measure.name for measure in measures))
    if unknown := [name for name in only if name not in names]:
        raise UserError(f"--only knows no measure {unknown[0]}. Choose among: {', '.join(names)}.")
    return [measure for measure in measures if not only or measure.name in only]
