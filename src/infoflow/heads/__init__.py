"""Measure what attention heads do, and how much a model depends on them."""

from ._ablate import ablate as ablate
from ._ablation_measure import ABLATION_TRANSFER, HEAD_ABLATION, ablation_transfer
from ._ablation_measure import Ablation as Ablation
from ._ablation_measure import ablation as ablation
from ._ablation_scores import SentenceFunction, VariantScores, corpus_scores, loss_scores
from ._attention_probe import HEAD_PROBE, AttentionProbe
from ._attention_rows import Annotation, TokenTags, membership, word_attention
from ._attention_statistics import HEAD_CONFIDENCE, HEAD_ENTROPY, HEAD_POSITIONAL, HEAD_RARE_TOKEN
from ._attention_statistics import Confidence as Confidence
from ._attention_statistics import Entropy as Entropy
from ._attention_statistics import PositionalScores as PositionalScores
from ._attention_statistics import RareTokenScores as RareTokenScores
from ._attention_statistics import attention_entropy as attention_entropy
from ._attention_statistics import confidence as confidence
from ._attention_statistics import offset_scores as offset_scores
from ._attention_statistics import rare_token_score as rare_token_score
from ._by_distance import HEAD_BY_DISTANCE
from ._by_distance import AttentionByDistance as AttentionByDistance
from ._context_measure import (
    ENCODER_CONTEXT,
    Closing,
    closings_of,
    context_bleu,
    context_rows,
    context_scores,
    self_attention_blocks,
)
from ._context_measure import EncoderContext as EncoderContext
from ._context_measure import closed_attention as closed_attention
from ._coreference import HEAD_COREFERENCE, read_mentions
from ._coreference import Coreference as Coreference
from ._distance import HEAD_LAYER_DISTANCE
from ._distance import HeadDistance as HeadDistance
from ._distance import HeadLayerDistance as HeadLayerDistance
from ._distance import js_distance as js_distance
from ._head_sets import Head, HeadEdit, HeadScore, drawn_heads, head_set, specialised_heads
from ._head_sets import HeadSet as HeadSet
from ._head_sets import all_heads as all_heads
from ._importance import HEAD_IMPORTANCE
from ._importance import Importance as Importance
from ._importance import importance as importance
from ._patterns import HEAD_PATTERNS, pattern_mask
from ._patterns import PatternScores as PatternScores
from ._pruning import HEAD_PRUNING_CURVE, load_pruned, prune, removable, silence
from ._pruning import PruningCurve as PruningCurve
from ._relations import HEAD_RELATIONS
from ._relations import RelationScores as RelationScores
from ._relations import relation_scores as relation_scores
from ._relevance import Place, SentenceRelevance, alti_contributions, sentence_relevance, token_relevance
from ._relevance import Relevance as Relevance
from ._relevance import relevance as relevance
from ._relevance._mixing import attention_flow as attention_flow
from ._relevance._mixing import attention_rollout as attention_rollout
from ._relevance._nodes import Norm, close, is_norm
from ._relevance._relevance import HEAD_RELEVANCE, MOST_EXPLAINED
from ._repeats import make_repeats
from ._retrieval_heads import HEAD_RETRIEVAL
from ._retrieval_heads import RetrievalHeads as RetrievalHeads
from ._role_table import (
    FUNCTIONS,
    HEAD_ROLES,
    Crossing,
    RoleEvents,
    by_chance,
    checked_curve,
    expected_jaccard,
    head_roles,
    is_finished,
    last_crossing,
    role_events,
    role_function,
    role_strength,
)
from ._scored import LONGEST_SCORED, ScoredBatch, SentenceScorer, by_first_block, no_loss
from ._sentence_attention import (
    AttentionOfKind,
    AttentionWatch,
    LayerAttention,
    SentenceAttention,
    logit_directions,
    output_weight,
    quantise,
    restore,
    sentence_inputs,
)
from ._sentence_attention import copying_scores as copying_scores
from ._sentence_attention import sentence_attention as sentence_attention
from ._sentence_lens import candidate_pairs, lens_logits, lens_rows, likeliest, sentence_lens, token_name, token_names
from ._sentence_tokens import ReadSentence, ReadToken, read_blanks, read_tokens, takes_pairs
from ._surface import HEAD_SPECIAL_GRADIENT, HEAD_SURFACE
from ._surface import SpecialGradient as SpecialGradient
from ._surface import SurfaceStatistics as SurfaceStatistics
from ._surface import attention_gradients as attention_gradients
from ._telling import HEAD_EXAMPLES, telling_heads
from ._telling import TellingSentences as TellingSentences
from ._transplant import TRANSPLANT_CURVES, TRANSPLANTED_HEADS, VARIANTS, log_mean, shuffled_heads
from ._transplant import head_slices as head_slices
from ._transplant import transplant as transplant
