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
def offline(monkeypatch):
    """Without an index, and without a process of pip for its settings."""
    monkeypatch.setattr("infoflow.corpus._package_index._pip", lambda *arguments: "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.fixture
def archive(offline, tmp_path, monkeypatch):
    """An archive of two pairs of the shape of the real one's, in the only folder that pip would look in."""
    import hashlib
    import io
    import tarfile
    import zipfile

    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as file:
        file.writestr("fra.txt", PAIRS)
        file.writestr("_about.txt", "about")
    with tarfile.open(fileobj=outer, mode="w:gz") as file:
        for name, data in (
            ("nmt-0.0.6/data/fra-eng.zip", inner.getvalue()),
            ("nmt-0.0.6/setup.py", b"raise SystemExit('it was run')"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    folder = tmp_path / "links"
    folder.mkdir()
    path = folder / "nmt-0.0.6.tar.gz"
    path.write_bytes(outer.getvalue())
    monkeypatch.setattr("infoflow.corpus._builtin._SHA256", hashlib.sha256(outer.getvalue()).hexdigest())
    monkeypatch.setattr("infoflow.corpus._builtin._BYTES", len(outer.getvalue()))
    contents = {"fra.txt": PAIRS, "_about.txt": "about"}
    unpacked = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    monkeypatch.setattr("infoflow.corpus._builtin._UNPACKED", unpacked)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return path
