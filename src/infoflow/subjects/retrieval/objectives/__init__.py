"""Objectives whose models read passages."""

from ._inverse_cloze import InverseCloze
from ._retrieval_lm import (
    SOURCES,
    ClosedBook,
    ReadGold,
    ReadRandom,
    RetrievalLM,
    RetrievalSettings,
    RetrieveBM25,
    RetrieveFrozen,
    RetrieveLearned,
)
from ._retrieval_lm import retrieval_model as retrieval_model

OBJECTIVES = (InverseCloze, ClosedBook, ReadGold, ReadRandom, RetrieveBM25, RetrieveFrozen, RetrieveLearned)
