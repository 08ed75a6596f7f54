"""Corpora of any size: readers, built-in corpora, tokenizers, word–subword alignment, batches by length."""

from ._abstract_sentences import Side
from ._alignment import NOT_A_WORD, SubwordAligner
from ._batches import length_batches
from ._cache import cache_folder
from ._catalogue import CorpusDescription, SplitDescription, describe_corpus, list_corpora
from ._categories import split_category
from ._columns import WHOLE_COLUMNS
from ._conllu import CONLLU_COLUMNS, conllu_keys
from ._corpus import Corpus as Corpus
from ._documents import most_of_document, stretches
from ._encoded import Encoded, token_frequencies, tokenizer_digest
from ._facts import FACT_LANGUAGE, FACTS_VERSION, FactSettings, Question
from ._facts import Fact as Fact
from ._facts import FactConfig as FactConfig
from ._facts import FactWorld as FactWorld
from ._generated import fact_corpus as fact_corpus
from ._generated import generate_facts as generate_facts
from ._generated import generate_grammar as generate_grammar
from ._grammar import GrammarConfig as GrammarConfig
from ._grammar import Rates as GrammarRates
from ._leakage import leakage, repeated
from ._lines import read_lines, read_objects
from ._load import load_corpus as load_corpus
from ._load import load_world
from ._parse import parse_corpus
from ._printable import printable
from ._running_text import running_text
from ._segment_pairs import Lone, PairKind, segment_pairs
from ._sentence import Sentence
from ._sentence_ends import Lines, sentences_of
from ._separated import read_cells
from ._split import SPLIT_RULES, SplitRule, split_numbers
from ._tables import table_columns
from ._tatoeba import load_tatoeba
from ._text_columns import TextColumns
from ._tokenizer_files import read_tokenizer
from ._tokenizers import SPECIAL_TOKENS, load_tokenizer
from ._tokenizers import train_tokenizer as train_tokenizer
from ._vocabulary import Vocabulary as Vocabulary
from ._windows import windows
