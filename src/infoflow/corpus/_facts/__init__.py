"""The generated world of facts `facts`: facts that a model may store in its weights, or can only look up."""

from ._config import FACTS_VERSION as FACTS_VERSION
from ._config import FactConfig as FactConfig
from ._config import FactSettings as FactSettings
from ._fact import Fact as Fact
from ._fact import Question as Question
from ._rows import FACT_COLUMNS as FACT_COLUMNS
from ._rows import fact_rows as fact_rows
from ._rows import num_language as num_language
from ._rows import num_queries as num_queries
from ._words import FACT_LANGUAGE as FACT_LANGUAGE
from ._words import FactWords as FactWords
from ._world import FactWorld as FactWorld
