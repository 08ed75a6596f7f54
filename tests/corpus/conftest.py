"""A cache of its own for each test, so that no test finds what another stored."""

import pytest

PAIRS = "Go.\tVa !\tCC-BY 2.0 (France) Attribution: #1 (A)\nHi.\tSalut.\tCC-BY 2.0 (France) Attribution: #2 (B)\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("INFOFLOW_CACHE", str(folder))
    return folder


@pytest.fixture
def small_batches(monkeypatch):
    """Every corpus of four sentences or more goes through the cache file."""
    monkeypatch.setattr("infoflow.corpus._store.BATCH", 4)


@pytest.fixture
def write(tmp_path):
    """Write a file from text or bytes (gzipped where the name says so) and return its path."""
    import gzip

    def write(name, content):
        data = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") and data[:2] != b"\x1f\x8b" else data)
        return path

    return write


@pytest.fixture
def two_pairs(tmp_path, monkeypatch):
    """The built-in corpus with two pairs alone."""
    import lzma

    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ATTRIBUTION.txt").write_text("Tatoeba")
    (folder / "tatoeba-en-fr.tsv.xz").write_bytes(lzma.compress(PAIRS.encode()))
    monkeypatch.setattr("infoflow.corpus._load._DATA", folder)
