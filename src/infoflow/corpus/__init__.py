"""Corpora of any size: readers, built-in corpora, tokenizers, word↔subword alignment, batches by length."""

from ._alignment import NOT_A_WORD as NOT_A_WORD
from ._alignment import SubwordAligner as SubwordAligner
from ._batches import length_batches as length_batches
from ._cache import cache_folder as cache_folder
from ._catalogue import CatalogueEntry as CatalogueEntry
from ._catalogue import CorpusDescription as CorpusDescription
from ._catalogue import describe_corpus as describe_corpus
from ._catalogue import list_corpora as list_corpora
from ._categories import CategoryParts as CategoryParts
from ._categories import split_category as split_category
from ._corpus import Corpus as Corpus
from ._corpus import CorpusSplit as CorpusSplit
from ._corpus import Side as Side
from ._encoded import Encoded as Encoded
from ._encoded import token_frequencies as token_frequencies
from ._encoded import tokenizer_digest as tokenizer_digest
from ._generated import generate_grammar as generate_grammar
from ._grammar import GrammarConfig as GrammarConfig
from ._grammar import Rates as GrammarRates
from ._load import load_corpus as load_corpus
from ._printable import printable as printable
from ._sentence import Sentence as Sentence
from ._tatoeba import load_tatoeba as load_tatoeba
from ._tokenizers import SPECIAL_TOKENS as SPECIAL_TOKENS
from ._tokenizers import load_tokenizer as load_tokenizer
from ._tokenizers import train_tokenizer as train_tokenizer
