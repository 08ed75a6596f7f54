"""The built-in corpus `grammar`: sentences of a small categorial grammar with their gold analysis and translation."""

from ._generate import GRAMMAR_COLUMNS as GRAMMAR_COLUMNS
from ._generate import GRAMMAR_VERSION as GRAMMAR_VERSION
from ._generate import GrammarConfig as GrammarConfig
from ._generate import Rates as Rates
from ._generate import grammar_rows as grammar_rows
from ._lexicon import Lemma as Lemma
from ._lexicon import Lexicon as Lexicon
from ._lexicon import WordClass as WordClass
from ._lexicon import make_lexicon as make_lexicon
