"""The development of a model during training: which updates to measure, and the analysis of curves over them."""

from infoflow.heads import Crossing, expected_jaccard, is_finished, last_crossing, role_events
from infoflow.training import (
    CHECKPOINTS,
    CLOCKS,
    DEFAULT_SCHEDULE,
    SUFFIX,
    Clock,
    checkpoint_steps,
    learning_rate_shares,
    measured_over_training,
    select_steps,
)
from infoflow.training import over_training as over_training

from ._ahead import Ahead
from ._among_checkpoints import EmbeddingChange as EmbeddingChange
from ._among_checkpoints import PredictionDivergence as PredictionDivergence
from ._among_checkpoints import WeightChange as WeightChange
from ._change_points import change_points
from ._check_rows import CHECKPOINT_CHECKS, CheckRow, SeriesChecks, WeighedCheckpoint
from ._checkpoint_names import checkpoint_name, parse_steps
from ._convergence_measure import CONVERGENCE
from ._convergence_measure import LayerConvergence as LayerConvergence
from ._convergence_measure import displacement as displacement
from ._course import COURSE_TABLES, course_tables
from ._course_measures import AMONG_CHECKPOINTS, AMONG_SEEDS, OF_CHECKPOINTS, course_measures
from ._effective_rank import EFFECTIVE_RANK
from ._effective_rank import EffectiveRank as EffectiveRank
from ._embedding_change import EMBEDDING_CHANGE
from ._embedding_change import embedding_change as embedding_change
from ._frequency_deciles import NUM_DECILES, frequency_deciles
from ._in_context_measure import IN_CONTEXT_LEARNING, context_positions, in_context_gain
from ._in_context_measure import InContextLearning as InContextLearning
from ._loss_by_frequency import LOSS_BY_FREQUENCY
from ._loss_by_frequency import LossByFrequency as LossByFrequency
from ._loss_by_position import LOSS_BY_POSITION
from ._loss_by_position import LossByPosition as LossByPosition
from ._ngram_agreement import NGRAM_AGREEMENT
from ._ngram_agreement import NgramAgreement as NgramAgreement
from ._ngrams import NgramModel
from ._phase import phase
from ._phase_curves import PHASE_CURVES
from ._phase_table import PHASES, turning
from ._phases_over_seeds import PHASES_OVER_SEEDS, phases_over_seeds
from ._prediction_divergence import PREDICTION_DIVERGENCE
from ._prediction_divergence import prediction_divergence as prediction_divergence
from ._prunable import PRUNABLE_BY_UPDATE, prunable_by_update
from ._public_suites import PUBLIC_SUITES, public_suite
from ._role_tables import HEAD_ROLE_EVENTS, ROLE_TURNOVER
from ._seed_divergence import SEED_DIVERGENCE
from ._seed_divergence import SeedDivergence as SeedDivergence
from ._series import CheckpointSeries, Missing, SuiteCheckpoint
from ._series_checks import check_series
from ._settling import CONVERGENCE_TIME
from ._settling import normalised_convergence as normalised_convergence
from ._source_contribution import SOURCE_CONTRIBUTION
from ._source_contribution import SourceContribution as SourceContribution
from ._sources import read_series
from ._stages_by_warmup import CHECKPOINT_STEPS, STAGES_BY_WARMUP, WarmedUp, is_longer_warmup, stages_by_warmup
from ._trainer_state import trainer_state
from ._translation_order import fuzzy_reordering, source_share
from ._translation_stages import TRANSLATION_STAGES
from ._translation_stages import TranslationStages as TranslationStages
from ._way_checks import triangle_ratios
from ._weighing import Weight, weigh
from ._weight_change import WEIGHT_CHANGE
from ._weight_change import effective_rank as effective_rank
from ._weight_change import weight_change as weight_change
from ._word_aligner import WordAligner
