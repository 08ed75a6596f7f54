"""Pictures of the repository, from experiments and of methods, on pages of the site: copied, shown as the gallery's."""

import html
import posixpath
import re
import shutil
from pathlib import Path

_PICTURE = re.compile(r"^!\[(?P<told>[^\]\n]+)\]\((?P<target>[^)\s]+\.svg)\)$", flags=re.MULTILINE)
_FOLDERS = ("experiments/", "docs/")


def brought_in(text: str, path: str) -> tuple[str, set[str]]:
    """The page at `path` with the site's addresses of such pictures, and their names in the repository.

    A picture is a line of its own, with an address relative to the page in docs:
    `![what](../../experiments/studies/a/b.svg)`, `![what](pictures/a.svg)`.
    """
    names: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        name = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), match["target"]))
        if not name.startswith(_FOLDERS):
            return match[0]
        names.add(name)
        here = posixpath.relpath(place(name), posixpath.dirname(path) or ".")
        return f'<div class="figure paper"><img alt="{html.escape(match["told"])}" src="{here}"></div>'

    return _PICTURE.sub(replaced, text), names


def place(name: str) -> str:
    """Where the site has a picture of the repository."""
    return f"pictures/{name.removeprefix('experiments/').removeprefix('docs/').replace('/', '-')}"


def copy(names: set[str], root: Path, target: Path) -> None:
    """The pictures of these names into the site's pages.

    Raises:
        FileNotFoundError: A page shows a picture that is not in the repository.
    """
    for name in sorted(names):
        (target / place(name)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target / place(name))
