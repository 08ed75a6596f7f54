"""Representations and how they change: information, similarity, geometry, neighbours."""

from ._cca import cca_correlations as cca_correlations
from ._change_by_frequency import CHANGE_BY_FREQUENCY
from ._change_by_frequency import ChangeByFrequency as ChangeByFrequency
from ._cka import linear_cka as linear_cka
from ._cka import minibatch_cka
from ._context_neighbours import CONTEXT_NEIGHBOURS
from ._context_neighbours import ContextNeighbours as ContextNeighbours
from ._discretize import discretize as discretize
from ._distance_distribution import DISTANCE_DISTRIBUTION
from ._distance_distribution import DistanceDistribution as DistanceDistribution
from ._entropy import EntropyEstimator as EntropyEstimator
from ._entropy import entropy as entropy
from ._explainable_variance import maximum_explainable_variance as maximum_explainable_variance
from ._gaussian_classifier import LabelledMoments
from ._geometry_table import GEOMETRY
from ._identity_neighbours import IDENTITY_NEIGHBOURS
from ._identity_neighbours import IdentityNeighbours as IdentityNeighbours
from ._influence_by_frequency import INFLUENCE_BY_FREQUENCY
from ._influence_by_frequency import InfluenceByFrequency as InfluenceByFrequency
from ._information_estimate import corrected_information as corrected_information
from ._information_estimate import estimate_information as estimate_information
from ._information_measure import MutualInformation as MutualInformation
from ._information_table import CONVERGED, LIMITED, MUTUAL_INFORMATION
from ._intra_sentence import IntraSentence as IntraSentence
from ._intrinsic_dimension import IntrinsicDimension as IntrinsicDimension
from ._intrinsic_dimension import spread_of_neighbours, two_neighbours
from ._intrinsic_dimension import two_nn_dimension as two_nn_dimension
from ._layer_distance import LAYER_DISTANCE
from ._layer_distance import LayerDistance as LayerDistance
from ._layer_maps import layer_maps as layer_maps
from ._layer_pair import LayerPair
from ._layer_space import LayerSpace
from ._lens_measure import LENS
from ._lens_measure import Lens as Lens
from ._lens_training import LensTraining as LensTraining
from ._lens_training import fit_tuned_lens as fit_tuned_lens
from ._logit_lens import logit_lens as logit_lens
from ._model_distance import MODEL_DISTANCE
from ._model_distance import ModelDistance as ModelDistance
from ._mutual_information import mutual_information as mutual_information
from ._neighbour_agreement import neighbour_agreement as neighbour_agreement
from ._paired_distance import BlockGroups
from ._position_neighbours import POSITION_NEIGHBOURS
from ._position_neighbours import PositionNeighbours as PositionNeighbours
from ._procrustes import procrustes_distance as procrustes_distance
from ._pwcca import pwcca as pwcca
from ._pwcca import warn_few_rows
from ._ranked_space import ItemPairs, RankedSpace
from ._reference_layer import ReferenceLayer
from ._rsa import centred_ranks
from ._rsa import rsa as rsa
from ._similarity import average_similarity as average_similarity
from ._similarity import intra_sentence_similarity as intra_sentence_similarity
from ._similarity import self_similarity as self_similarity
from ._similarity import unit_rows
from ._space_metrics import space_values
from ._space_similarity import SPACE_SIMILARITY
from ._space_similarity import SpaceSimilarity as SpaceSimilarity
from ._svcca import svcca as svcca
from ._svd import correlations_svd, thin_svd
from ._tag_neighbours import TAG_NEIGHBOURS
from ._tag_neighbours import TagNeighbours as TagNeighbours
from ._token_map import TOKEN_MAP, map_states
from ._token_map import TokenMap as TokenMap
from ._tuned_lens import TunedLens as TunedLens
from ._usable_information import USABLE_INFORMATION
from ._usable_information import UsableInformation as UsableInformation
from ._usable_information import usable_information as usable_information
from ._within_tokens import position_distance as position_distance
from ._within_tokens import within_token_agreement as within_token_agreement
from ._word_geometry import WordGeometry as WordGeometry
from ._word_geometry import rogue_share
from ._word_neighbours import WORD_NEIGHBOURS
from ._word_neighbours import WordNeighbours as WordNeighbours
from ._word_neighbours import static_vectors as static_vectors
from ._word_senses import disagreement, nearest_of_other_words, overlap, two_groups
