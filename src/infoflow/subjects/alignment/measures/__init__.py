"""Maps from one encoder's space to another's, and word retrieval across them."""

from ._both_ways import ExplicitConfig as ExplicitConfig
from ._both_ways import ImplicitConfig, align_implicit, initial_encoder, transplanted
from ._both_ways import align_explicit as align_explicit
from ._controls import align_with_controls as align_with_controls
from ._controls import least_squares_map
from ._controls import linearly_aligned as linearly_aligned
from ._encoders import AlignedEncoder as AlignedEncoder
from ._encoders import encoder_of
from ._evaluate import ALIGNMENT, EvaluationOptions, Kind, retrieval_hits
from ._evaluate import evaluate_alignment as evaluate_alignment
from ._held_out import HeldOutWords, linked_vectors
from ._links import IdentityLinks as IdentityLinks
from ._links import LinkedSentences as LinkedSentences
from ._links import PharaohLinks, ShuffledLinks, word_vectors
