"""What each attention head does."""

from ._confidence import confidence as confidence
from ._confidence_measure import Confidence as Confidence
from ._entropy import attention_entropy as attention_entropy
from ._entropy_measure import Entropy as Entropy
from ._js_distance import js_distance as js_distance
from ._offsets import offset_scores as offset_scores
from ._positional_measure import PositionalScores as PositionalScores
from ._quantised import quantise as quantise
from ._quantised import restore as restore
from ._rare_token import rare_token_score as rare_token_score
from ._relations import relation_scores as relation_scores
from ._rollout import attention_flow as attention_flow
from ._rollout import attention_rollout as attention_rollout
from ._sentence_attention import AttentionOfKind as AttentionOfKind
from ._sentence_attention import LayerAttention as LayerAttention
from ._sentence_attention import SentenceAttention as SentenceAttention
from ._sentence_attention import sentence_attention as sentence_attention
from ._sentence_tokens import ReadSentence as ReadSentence
from ._sentence_tokens import ReadToken as ReadToken
from ._value_weighted import output_weight as output_weight
from ._value_weighted import value_norms as value_norms
from ._value_weighted import value_weighted_norms as value_weighted_norms
