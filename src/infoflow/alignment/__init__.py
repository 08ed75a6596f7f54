"""Mapping one encoder's space onto another's, and finding words again on the other side."""

from ._controls import align_with_controls as align_with_controls
from ._controls import linearly_aligned as linearly_aligned
from ._csls import csls as csls
from ._encoders import AlignedEncoder as AlignedEncoder
from ._evaluate import EvaluationOptions as EvaluationOptions
from ._evaluate import evaluate_alignment as evaluate_alignment
from ._explicit import ExplicitConfig as ExplicitConfig
from ._explicit import align_explicit as align_explicit
from ._explicit import initial_encoder as initial_encoder
from ._implicit import ImplicitConfig as ImplicitConfig
from ._implicit import align_implicit as align_implicit
from ._implicit import transplanted as transplanted
from ._linear_map import LinearMap as LinearMap
from ._linear_map import least_squares_map as least_squares_map
from ._linear_map import procrustes_map as procrustes_map
from ._linked_sentences import LinkedSentences as LinkedSentences
from ._links import AbstractWordLinks as AbstractWordLinks
from ._links import IdentityLinks as IdentityLinks
from ._links import PharaohLinks as PharaohLinks
from ._links import ShuffledLinks as ShuffledLinks
from ._retrieval import Retrieval as Retrieval
from ._retrieval import retrieval_accuracy as retrieval_accuracy
from ._table import ALIGNMENT as ALIGNMENT
from ._table import Kind as Kind
