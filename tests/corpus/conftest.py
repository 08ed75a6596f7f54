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
def archive(tmp_path, monkeypatch):
    """An archive of two pairs of the shape of the real one's, on an index of one folder."""
    import hashlib
    import io
    import tarfile
    import zipfile

    from infoflow.corpus import _builtin as tatoeba
    from infoflow.corpus._package_index import PipSettings

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
    (folder / "nmt-0.0.6.tar.gz").write_bytes(outer.getvalue())
    monkeypatch.setattr(tatoeba, "_SHA256", hashlib.sha256(outer.getvalue()).hexdigest())
    monkeypatch.setattr(tatoeba, "_BYTES", len(outer.getvalue()))
    contents = {"fra.txt": PAIRS, "_about.txt": "about"}
    unpacked = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    monkeypatch.setattr(tatoeba, "_UNPACKED", unpacked)
    return PipSettings(indexes=(), find_links=(str(folder),))
