"""`generate_grammar`: the built-in corpus for controlled experiments."""

from infoflow.foundation import UserError, current_display, digest

from ._corpus import Corpus
from ._grammar import GRAMMAR_COLUMNS, GRAMMAR_VERSION, GrammarConfig, grammar_rows
from ._store import store

MOST_SENTENCES = 100_000_000


def generate_grammar(num: int, seed: int = 0, config: GrammarConfig | None = None) -> Corpus:
    """`num` sentences of a categorial grammar of English-like sentences, with gold analysis and translation.

    Columns: text, translation, words, upos, head, deprel (Universal Dependencies), ccg, ccg_left, ccg_right. Sentence i
    is a function of (`seed`, i, `config`), so a larger corpus begins with the smaller one. Needs no network.

    Raises:
        UserError: `num` outside 1 to 100,000,000, or a vocabulary below 100.
    """
    if not isinstance(num, int) or not 1 <= num <= MOST_SENTENCES:
        raise UserError(f"A generated corpus has 1 to {MOST_SENTENCES:,} sentences, a whole number. Got {num}.")
    config = config or GrammarConfig()
    key = digest(["grammar", GRAMMAR_VERSION, num, seed, config])
    current_display().note(f"Generating {num:,} sentences of the built-in grammar (seed {seed}).")
    return Corpus(store(grammar_rows(num, seed, config), GRAMMAR_COLUMNS, "grammar", key), "grammar")
