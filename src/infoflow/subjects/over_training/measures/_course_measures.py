"""What is measured at the checkpoints of a training in addition to the standard measures."""

from infoflow.flow import AbstractMeasure

from ._convergence_measure import CONVERGENCE
from ._effective_rank import EffectiveRank
from ._embedding_change import EMBEDDING_CHANGE
from ._in_context_measure import InContextLearning
from ._loss_by_frequency import LossByFrequency
from ._loss_by_position import LossByPosition
from ._ngram_agreement import NgramAgreement
from ._prediction_divergence import PREDICTION_DIVERGENCE
from ._seed_divergence import SEED_DIVERGENCE
from ._source_contribution import SourceContribution
from ._translation_stages import TranslationStages
from ._weight_change import WEIGHT_CHANGE

AMONG_CHECKPOINTS = (CONVERGENCE.name, WEIGHT_CHANGE.name, PREDICTION_DIVERGENCE.name, EMBEDDING_CHANGE.name)
"""Tables that compare checkpoints of one training with each other."""
AMONG_SEEDS = (SEED_DIVERGENCE.name,)
"""Tables that compare checkpoints of two trainings of a study, on request."""
OF_CHECKPOINTS = (*AMONG_CHECKPOINTS, *AMONG_SEEDS)


def course_measures(occurrences: int) -> list[AbstractMeasure]:
    """Measures for training courses only; the first reads the sentences for all that need losses."""
    return [
        NgramAgreement(),
        LossByPosition(),
        LossByFrequency(),
        InContextLearning(),
        TranslationStages(),
        SourceContribution(),
        EffectiveRank(occurrences),
    ]
