"""Relevance of heads and input tokens to a model's predictions."""

from ._mixing import alti_contributions as alti_contributions
from ._relevance import Relevance as Relevance
from ._relevance import relevance as relevance
from ._relevance import sentence_relevance as sentence_relevance
from ._relevance import token_relevance as token_relevance
from ._request import Place as Place
from ._request import SentenceRelevance as SentenceRelevance
