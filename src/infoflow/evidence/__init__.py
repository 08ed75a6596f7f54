"""What a model holds of facts, and what it reads of a document that says them: by layer, head and token."""

from ._answers import answer_log_probabilities as answer_log_probabilities
from ._answers import choice_log_probabilities as choice_log_probabilities
from ._inputs import DOCUMENTS as DOCUMENTS
from ._inputs import EVIDENCE_PARTS as EVIDENCE_PARTS
from ._inputs import Document as Document
from ._inputs import FactInputs as FactInputs
from ._inputs import Part as Part
from ._inputs import fact_inputs as fact_inputs
from ._tables import ATTENTION_RANKING as ATTENTION_RANKING
from ._tables import EVIDENCE_ABLATION as EVIDENCE_ABLATION
from ._tables import EVIDENCE_FLOW as EVIDENCE_FLOW
from ._tables import EVIDENCE_HEADS as EVIDENCE_HEADS
from ._tables import EVIDENCE_TABLES as EVIDENCE_TABLES
from ._tables import KNOWLEDGE as KNOWLEDGE
from ._tables import KNOWLEDGE_CONFLICT as KNOWLEDGE_CONFLICT
from ._tables import KNOWLEDGE_LENS as KNOWLEDGE_LENS
from ._tables import READINGS as READINGS
