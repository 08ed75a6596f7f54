"""Representations and how they change: information, similarity, geometry, neighbours."""

from ._block_groups import BlockGroups
from ._cca import cca_correlations as cca_correlations
from ._cca import correlations_svd, thin_svd, warn_few_rows
from ._cca import pwcca as pwcca
from ._cca import svcca as svcca
from ._change_by_frequency import CHANGE_BY_FREQUENCY
from ._change_by_frequency import ChangeByFrequency as ChangeByFrequency
from ._cka import linear_cka as linear_cka
from ._cka import maximum_explainable_variance as maximum_explainable_variance
from ._cka import minibatch_cka as minibatch_cka
from ._cka import procrustes_distance as procrustes_distance
from ._clusters import StateClusters, cluster, nearest, position_means
from ._clusters import discretize as discretize
from ._entropy import EntropyEstimator as EntropyEstimator
from ._entropy import entropy as entropy
from ._entropy import mutual_information as mutual_information
from ._gaussian_classifier import LabelledMoments
from ._geometry_table import GEOMETRY
from ._influence_by_frequency import INFLUENCE_BY_FREQUENCY
from ._influence_by_frequency import InfluenceByFrequency as InfluenceByFrequency
from ._information_estimate import HalvedClusters
from ._information_estimate import corrected_information as corrected_information
from ._information_estimate import estimate_information as estimate_information
from ._information_measure import MutualInformation as MutualInformation
from ._information_measure import MutualInformationWithoutPosition as MutualInformationWithoutPosition
from ._information_table import CONVERGED, LIMITED, MUTUAL_INFORMATION, MUTUAL_INFORMATION_WITHOUT_POSITION
from ._intrinsic_dimension import IntrinsicDimension as IntrinsicDimension
from ._intrinsic_dimension import spread_of_neighbours, two_neighbours
from ._intrinsic_dimension import two_nn_dimension as two_nn_dimension
from ._layer_maps import layer_maps as layer_maps
from ._layer_space import LayerPair, LayerSpace
from ._lens import LensTraining as LensTraining
from ._lens import TunedLens as TunedLens
from ._lens import fit_tuned_lens as fit_tuned_lens
from ._lens import logit_lens as logit_lens
from ._lens import no_readout, row_chunks
from ._nearest import neighbour_agreement as neighbour_agreement
from ._neighbours import CONTEXT_NEIGHBOURS, IDENTITY_NEIGHBOURS, POSITION_NEIGHBOURS, TAG_NEIGHBOURS
from ._neighbours import ContextNeighbours as ContextNeighbours
from ._neighbours import IdentityNeighbours as IdentityNeighbours
from ._neighbours import PositionNeighbours as PositionNeighbours
from ._neighbours import TagNeighbours as TagNeighbours
from ._paired_distance import LAYER_DISTANCE, MODEL_DISTANCE
from ._paired_distance import LayerDistance as LayerDistance
from ._paired_distance import ModelDistance as ModelDistance
from ._rsa import ItemPairs, RankedSpace, centred_ranks, spearman_rows
from ._rsa import rsa as rsa
from ._space_metrics import ReferenceLayer, space_values
from ._space_similarity import SPACE_SIMILARITY
from ._space_similarity import SpaceSimilarity as SpaceSimilarity
from ._stacked import Schedule, StackedAdam, first_choice, mlp_logits, mlp_parameters, train_stacked, uniform
from ._token_map import TOKEN_MAP
from ._token_map import TokenMap as TokenMap
from ._usable_information import USABLE_INFORMATION, UsableEstimate, estimate_usable, usable_columns
from ._usable_information import UsableInformation as UsableInformation
from ._usable_information import usable_information as usable_information
from ._usable_mlp import USABLE_INFORMATION_MLP, UsableInformationMLP, usable_by_mlp
from ._views import average_similarity as average_similarity
from ._views import intra_sentence_similarity as intra_sentence_similarity
from ._views import self_similarity as self_similarity
from ._views import unit_rows
from ._within_tokens import position_distance as position_distance
from ._within_tokens import within_token_agreement as within_token_agreement
from ._word_geometry import WordGeometry as WordGeometry
from ._word_geometry import rogue_share
from ._word_neighbours import WORD_NEIGHBOURS, disagreement, nearest_of_other_words, overlap, two_groups
from ._word_neighbours import WordNeighbours as WordNeighbours
from ._word_neighbours import static_vectors as static_vectors
from ._word_similarity import DISTANCE_DISTRIBUTION
from ._word_similarity import DistanceDistribution as DistanceDistribution
from ._word_similarity import IntraSentence as IntraSentence
