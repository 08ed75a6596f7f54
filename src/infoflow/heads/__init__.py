"""What each attention head does."""

from ._confidence import confidence as confidence
from ._confidence_measure import Confidence as Confidence
from ._entropy import attention_entropy as attention_entropy
from ._entropy_measure import Entropy as Entropy
from ._offsets import offset_scores as offset_scores
from ._positional_measure import PositionalScores as PositionalScores
