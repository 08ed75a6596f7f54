"""Every public name stands on exactly one API page, and says what it is."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

pytest.importorskip("griffe", reason="the tools for the documentation are not installed")

from sitebuild import api, schemas  # noqa: E402
from test_surface import SHORT  # noqa: E402

import infoflow  # noqa: E402

SOURCE = ROOT / "src"
SURFACE = (ROOT / "tests" / "surface.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    tables = {path: schemas.described(schema) for path, schema in schemas.exported().items()}
    return dict(api.pages(SOURCE, tables))


def public() -> list[api.Name]:
    return [name for room in api.rooms(SOURCE) for name in api.public_names(SOURCE, room)]


def test_the_names_are_those_of_the_frozen_surface():
    frozen = re.findall(r"^infoflow\.([\w.]+)\.(\w+)$", SURFACE, flags=re.MULTILINE)
    full = {f"infoflow.{SHORT.get(room, room)}.{name}" for room, name in frozen if room != "cli"}
    full |= {f"infoflow.{room}.{infoflow._NAMES.get(name, name)}" for name, room in infoflow._HOMES.items()}
    assert full == {name.path for name in public()}


def test_every_public_name_and_table_is_on_exactly_one_page(pages):
    documented = re.findall(r"^::: (\S+)$|^## \S+ \{#(\S+)\}$", "\n".join(pages.values()), flags=re.MULTILINE)
    paths = [one or other for one, other in documented]
    assert len(paths) == len(set(paths))
    by_target = {name.target: name for name in public() if name.home == name.room}
    assert {*(name.path for name in by_target.values()), *schemas.exported()} == set(paths)
    assert {name.target for name in public()} == set(by_target)


def test_every_public_name_says_what_it_is():
    tables = schemas.exported()
    silent = {name.path for name in public() if not name.docstring and name.path not in tables}
    assert silent == set()


def test_every_name_at_the_top_level_is_linked(pages):
    linked = set(re.findall(r"\[`infoflow\.(\w+)`\]", pages["index.md"]))
    assert set(re.findall(r"^infoflow\.(\w+)$", SURFACE, flags=re.MULTILINE)) <= linked
