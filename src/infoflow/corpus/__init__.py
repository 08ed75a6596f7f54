"""Corpora of any size: readers, built-in corpora, tokenizers, word–subword alignment, batches by length."""

from ._abstract_sentences import Side, tag_columns
from ._alignment import NOT_A_WORD, SubwordAligner, control_tokens, running_text
from ._catalogue import (
    CorpusDescription,
    SplitDescription,
    card_facts,
    describe_corpus,
    leakage,
    list_corpora,
    repeated,
)
from ._chat import chat_text, load_chat
from ._columns import ENTITY, RENDERED, WHOLE_COLUMNS, Sentence, TextColumns
from ._conllu import CONLLU_COLUMNS, conllu_keys
from ._corpus import Corpus as Corpus
from ._documents import most_of_document, normalised, stretches
from ._encoded import Encoded, length_batches, template_digest, token_frequencies, tokenizer_digest
from ._fact_language import FACT_LANGUAGE, FACTS_VERSION, Fact, FactSettings, Question
from ._fact_language import FactConfig as FactConfig
from ._fact_world import FactWorld as FactWorld
from ._grammar import GrammarConfig as GrammarConfig
from ._grammar import Rates as GrammarRates
from ._inspect import check_columns
from ._lines import printable, read_cells, read_lines, read_objects, unused_signs
from ._load import fact_corpus as fact_corpus
from ._load import generate_facts as generate_facts
from ._load import generate_grammar as generate_grammar
from ._load import load_corpus as load_corpus
from ._load import load_tatoeba, load_world
from ._parse import parse_corpus
from ._plain_text import STOPS, Lines, sentences_of
from ._segment_pairs import Lone, PairKind, segment_pairs, windows
from ._split import SPLIT_RULES, SplitRule, split_numbers
from ._store import cache_folder
from ._tables import read_records, table_columns
from ._tagged import split_category
from ._tokenizers import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, load_tokenizer, read_tokenizer, sentinel_names
from ._tokenizers import Vocabulary as Vocabulary
from ._tokenizers import train_tokenizer as train_tokenizer
