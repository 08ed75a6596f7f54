"""The built-in corpora: `tatoeba-en-fr`, which comes with the package, and generated ones for experiments."""

import lzma
import shutil
from pathlib import Path

from infoflow.foundation import UserError, current_display, digest

from ._corpus import Corpus
from ._facts import FACT_COLUMNS, FACTS_VERSION, FactConfig, FactWorld, fact_rows, num_queries
from ._grammar import GRAMMAR_COLUMNS, GRAMMAR_VERSION, GrammarConfig, grammar_rows
from ._store import cache_folder, cached, store

# The built-in corpus `tatoeba-en-fr`: real sentences.


TATOEBA = "tatoeba-en-fr"

_DATA = Path(__file__).parent / "data"
_PACKED, _PAIRS, _ATTRIBUTION = "tatoeba-en-fr.tsv.xz", "fra.txt", "ATTRIBUTION.txt"


def load_tatoeba() -> Corpus:
    """178,009 English sentences with a French translation (CC-BY 2.0 FR), each with its attribution; needs no network.

    The file comes with the package and is unpacked once, into the cache.

    Raises:
        UserError: The cache cannot be written, or the disk is full.
    """
    return Corpus.from_parallel(cached(TATOEBA, _unpack, f"The corpus {TATOEBA}") / _PAIRS, name=TATOEBA)


def tatoeba_folder() -> Path:
    """Folder of the unpacked sentences and their attribution."""
    return cache_folder() / TATOEBA


def _unpack(folder: Path) -> None:
    shutil.copyfile(_DATA / _ATTRIBUTION, folder / _ATTRIBUTION)
    with lzma.open(_DATA / _PACKED) as packed, (folder / _PAIRS).open("wb") as pairs:
        shutil.copyfileobj(packed, pairs, 1 << 20)


# `generate_grammar`, `generate_facts`: the built-in corpora for controlled experiments.


MOST_SENTENCES = 100_000_000


def generate_grammar(num: int, seed: int = 0, config: GrammarConfig | None = None) -> Corpus:
    """`num` sentences of a categorial grammar of English-like sentences, with gold analysis and translation.

    Columns: text, translation, words, upos, head, deprel (Universal Dependencies), ccg, ccg_left, ccg_right. Sentence i
    depends only on (`seed`, i, `config`), so a larger corpus extends a smaller one. Needs no network.

    Raises:
        UserError: `num` is outside 1 to 100,000,000, or the vocabulary is below 100.
    """
    if not isinstance(num, int) or not 1 <= num <= MOST_SENTENCES:
        raise UserError(
            f"The size of a generated corpus must be a whole number from 1 to {MOST_SENTENCES:,}. Got {num}."
        )
    config = config or GrammarConfig()
    key = digest(["grammar", GRAMMAR_VERSION, num, seed, config])
    current_display().note(f"Generating {num:,} sentences of the built-in grammar (seed {seed}).")
    return Corpus(store(grammar_rows(num, seed, config), GRAMMAR_COLUMNS, "grammar", key), "grammar")


def generate_facts(config: FactConfig | None = None, seed: int = 0) -> FactWorld:
    """A world of facts: entities, relations, trained, held-out, withheld and changed facts; needs no network.

    Everything depends only on (`seed`, `config`), and a larger world extends a smaller one. `fact_corpus` makes its
    training text; its passages and questions are methods of the world.

    Raises:
        UserError: No fact would be in training, with these shares and this seed.
    """
    world = FactWorld(config or FactConfig(), seed)
    if not num_queries(world):
        raise UserError(
            f"A world of facts needs at least one training fact. Got none of {len(world.facts):,} with held_out = "
            f"{world.config.held_out}, withheld = {world.config.withheld}.\nLower these shares, or add entities."
        )
    return world


def fact_corpus(world: FactWorld) -> Corpus:
    """The training text of a world: queries about trained facts by weight, mixed with sentences of a language.

    Columns: text, words, entity (the role of each word: subject, relation, object), label (the fact's number).
    """
    key = digest(["facts", FACTS_VERSION, world.seed, world.config])
    return Corpus(store(fact_rows(world), FACT_COLUMNS, "facts", key), "facts")
