"""What each attention head does."""

from ._confidence import confidence as confidence
from ._confidence_measure import Confidence as Confidence
from ._entropy import attention_entropy as attention_entropy
from ._entropy_measure import Entropy as Entropy
from ._js_distance import js_distance as js_distance
from ._offsets import offset_scores as offset_scores
from ._positional_measure import PositionalScores as PositionalScores
from ._rare_token import rare_token_score as rare_token_score
from ._relations import relation_scores as relation_scores
from ._rollout import attention_flow as attention_flow
from ._rollout import attention_rollout as attention_rollout
