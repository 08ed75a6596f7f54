"""The generated world of facts `facts`: facts that a model may store in its weights, or can only look up."""

from ._language import FACT_LANGUAGE as FACT_LANGUAGE
from ._language import FACTS_VERSION as FACTS_VERSION
from ._language import Fact as Fact
from ._language import FactConfig as FactConfig
from ._language import FactSettings as FactSettings
from ._language import FactWords as FactWords
from ._language import Question as Question
from ._world import FACT_COLUMNS as FACT_COLUMNS
from ._world import FactWorld as FactWorld
from ._world import fact_rows as fact_rows
from ._world import num_language as num_language
from ._world import num_queries as num_queries
