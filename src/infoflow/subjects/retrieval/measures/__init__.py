"""What a model stores about facts, and what it reads about them from a document, by layer, head and token."""

from ._answers import (
    OWN,
    answer_log_probabilities,
    choice_log_probabilities,
    own_log_probabilities,
    question_candidates,
)
from ._attention_ranking import EVERY_KIND as EVERY_KIND
from ._attention_ranking import attention_ranking as attention_ranking
from ._course import RETRIEVAL_COURSE
from ._course import later_answers as later_answers
from ._evidence_flow import evidence_flow as evidence_flow
from ._evidence_heads import evidence_ablation as evidence_ablation
from ._evidence_heads import evidence_heads as evidence_heads
from ._fact_lens import fact_lens as fact_lens
from ._fact_lens import half_of_entities, probe_rows
from ._fact_reading import READ_KINDS, attention_shares
from ._inputs import DOCUMENTS, EVIDENCE_PARTS, TokenPart, fact_inputs
from ._knowledge import elicitation_entities
from ._knowledge import elicited as elicited
from ._knowledge import knowledge as knowledge
from ._knowledge import knowledge_conflict as knowledge_conflict
from ._knowledge_lens import entry_rows, information_rows
from ._knowledge_lens import knowledge_lens as knowledge_lens
from ._knowledge_lens import knowledge_without_ffn as knowledge_without_ffn
from ._retrieval_examples import decoded_answers
from ._retrieval_examples import retrieval_examples as retrieval_examples
from ._tables import (
    ATTENTION_RANKING,
    EVIDENCE_ABLATION,
    EVIDENCE_FLOW,
    EVIDENCE_HEADS,
    EVIDENCE_TABLES,
    KNOWLEDGE,
    KNOWLEDGE_CONFLICT,
    KNOWLEDGE_LENS,
    RETRIEVAL_EXAMPLES,
    fact_blocks,
    sampled_facts,
)
