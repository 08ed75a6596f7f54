"""The development of a model during training: which updates to measure, and the analysis of curves over them."""

from infoflow.training import over_training as over_training

from ._checkpoint_names import PUBLIC_SUITES, checkpoint_name, parse_steps, public_suite, trainer_state
from ._convergence import CONVERGENCE, PREDICTION_DIVERGENCE, SEED_DIVERGENCE
from ._convergence import LayerConvergence as LayerConvergence
from ._convergence import displacement as displacement
from ._convergence import prediction_divergence as prediction_divergence
from ._course import (
    AMONG_CHECKPOINTS,
    AMONG_SEEDS,
    CONVERGENCE_TIME,
    COURSE_TABLES,
    MEASURES,
    OF_CHECKPOINTS,
    course_tables,
)
from ._course import EmbeddingChange as EmbeddingChange
from ._course import PredictionDivergence as PredictionDivergence
from ._course import SeedDivergence as SeedDivergence
from ._course import WeightChange as WeightChange
from ._course import normalised_convergence as normalised_convergence
from ._in_context_measure import IN_CONTEXT_LEARNING, context_positions, in_context_gain
from ._in_context_measure import InContextLearning as InContextLearning
from ._loss_by_frequency import EMBEDDING_CHANGE, LOSS_BY_FREQUENCY, LOSS_BY_POSITION, NUM_DECILES, frequency_deciles
from ._loss_by_frequency import LossByFrequency as LossByFrequency
from ._loss_by_frequency import LossByPosition as LossByPosition
from ._loss_by_frequency import embedding_change as embedding_change
from ._ngram_agreement import (
    CHECKPOINT_STEPS,
    NGRAM_AGREEMENT,
    STAGES_BY_WARMUP,
    WarmedUp,
    is_longer_warmup,
    stages_by_warmup,
)
from ._ngram_agreement import NgramAgreement as NgramAgreement
from ._ngrams import NgramModel, WordAligner
from ._phase import change_points, phase
from ._phase_curves import PHASE_CURVES
from ._phase_table import PHASES, PHASES_OVER_SEEDS, phases_over_seeds, turning
from ._places import Ahead, FolderPlace
from ._role_tables import HEAD_ROLE_EVENTS, PRUNABLE_BY_UPDATE, ROLE_TURNOVER, prunable_by_update
from ._series import CheckpointSeries, Missing, SuiteCheckpoint
from ._series_checks import check_series
from ._source_contribution import SOURCE_CONTRIBUTION, fuzzy_reordering, source_share
from ._source_contribution import SourceContribution as SourceContribution
from ._sources import read_series
from ._translation_stages import TRANSLATION_STAGES
from ._translation_stages import TranslationStages as TranslationStages
from ._way_checks import CHECKPOINT_CHECKS, CheckRow, SeriesChecks, WeighedCheckpoint, triangle_ratios
from ._weighing import Weight, weigh
from ._weight_change import BLOCK, EFFECTIVE_RANK, WEIGHT_CHANGE
from ._weight_change import EffectiveRank as EffectiveRank
from ._weight_change import effective_rank as effective_rank
from ._weight_change import weight_change as weight_change
