"""A full disk is called by its name, and what is done stays done."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_stages import ENTRY, Toy, written


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("nothing may be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_study_on_a_full_disk_names_it_once(small_disk):
    from infoflow.engine import check_endings, local_engine
    from infoflow.foundation import UserError

    folder = str(small_disk / "run")
    Path(folder).mkdir()
    graph = [Toy(folder=folder, key="a")]
    graph += [Toy(folder=folder, key=key, needs=("a",), action="fill", argument=2**20) for key in ("b", "c")]
    with local_engine(1, folder=folder, entry=ENTRY) as engine:
        endings = engine.run(written(graph), lambda event: None)
    assert endings["a"].state == "done"
    assert graph[0].is_done()
    said = rf"^fill b, fill c: The disk is full: {small_disk}\.\nFree some space.*the same command continues"
    with pytest.raises(UserError, match=said) as told:
        check_endings(graph, endings)
    assert str(told.value).count("The disk is full") == 1
