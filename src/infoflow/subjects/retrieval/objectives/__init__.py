"""Objectives whose models read passages."""

from ._inverse_cloze import InverseCloze as InverseCloze
from ._retrieval_lm import SOURCES, RetrievalSettings
from ._retrieval_lm import ClosedBook as ClosedBook
from ._retrieval_lm import ReadGold as ReadGold
from ._retrieval_lm import ReadRandom as ReadRandom
from ._retrieval_lm import RetrievalLM as RetrievalLM
from ._retrieval_lm import RetrieveBM25 as RetrieveBM25
from ._retrieval_lm import RetrieveFrozen as RetrieveFrozen
from ._retrieval_lm import RetrieveLearned as RetrieveLearned
from ._retrieval_lm import retrieval_model as retrieval_model

OBJECTIVES = (InverseCloze, ClosedBook, ReadGold, ReadRandom, RetrieveBM25, RetrieveFrozen, RetrieveLearned)
