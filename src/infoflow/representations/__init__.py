"""What representations know and how they change: information, similarity, geometry, neighbours."""

from ._cca import cca_correlations as cca_correlations
from ._change_by_frequency import ChangeByFrequency as ChangeByFrequency
from ._cka import linear_cka as linear_cka
from ._cka import minibatch_cka as minibatch_cka
from ._context_neighbours import ContextNeighbours as ContextNeighbours
from ._discretize import discretize as discretize
from ._explainable_variance import maximum_explainable_variance as maximum_explainable_variance
from ._identity_neighbours import IdentityNeighbours as IdentityNeighbours
from ._information_measure import MutualInformation as MutualInformation
from ._layer_distance import LayerDistance as LayerDistance
from ._model_distance import ModelDistance as ModelDistance
from ._mutual_information import mutual_information as mutual_information
from ._neighbour_agreement import neighbour_agreement as neighbour_agreement
from ._position_neighbours import PositionNeighbours as PositionNeighbours
from ._procrustes import procrustes_distance as procrustes_distance
from ._pwcca import pwcca as pwcca
from ._rsa import rsa as rsa
from ._similarity import average_similarity as average_similarity
from ._similarity import intra_sentence_similarity as intra_sentence_similarity
from ._similarity import self_similarity as self_similarity
from ._space_similarity import SpaceSimilarity as SpaceSimilarity
from ._svcca import svcca as svcca
from ._tag_neighbours import TagNeighbours as TagNeighbours
from ._two_nn import two_nn_dimension as two_nn_dimension
from ._within_tokens import position_distance as position_distance
from ._within_tokens import within_token_agreement as within_token_agreement
