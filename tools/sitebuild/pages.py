"""Pages of a site that is staged: written files, their titles, and the navigation that follows from the folders."""

import re
import shutil
from pathlib import Path
from typing import Any

# Folder, its name in the navigation. Files of a folder come as `ORDER` says, then by title.
SECTIONS = (
    ("guides", "Guides"),
    ("methods", "Methods"),
    ("gallery", "Gallery"),
    ("extend", "Your own"),
    ("background", "Background"),
    ("decisions", "Decisions"),
    ("api", "API"),
)
# Pages beside the folders: where each stands.
FRONT = ("index.md", "start.md")
BACK = ("findings.md", "references.md", "changelog.md")


def title(text: str) -> str:
    """The first heading, without Markdown.

    Raises:
        ValueError: The page has none.
    """
    if not (found := re.search(r"^# (.+?)(?: \{#.*\})?$", text, flags=re.MULTILINE)):
        raise ValueError(f"A page has no heading: {text[:80]!r}")
    return found[1].replace("`", "")


def short_title(text: str) -> str:
    """What the navigation says: `short:` of the front matter, or the title."""
    found = re.match(r"---\n(?:.*\n)*?short: (.+)\n(?:.*\n)*?---\n", text)
    return found[1].strip() if found else title(text)


def navigation(texts: dict[str, str]) -> list[Any]:
    """mkdocs's `nav` for pages by path.

    Raises:
        ValueError: A page has no place in it.
    """
    if lost := [p for p in texts if "/" not in p and p not in (*FRONT, *BACK)]:
        raise ValueError(f"{lost[0]} has no place in the navigation: put it into a folder of sitebuild/pages.py.")
    nav: list[Any] = [{short_title(texts[path]): path} for path in FRONT if path in texts]
    for folder, name in SECTIONS:
        own = [path for path in texts if path.startswith(f"{folder}/")]
        first = [path for path in own if path.endswith("/index.md")]
        rest = sorted((path for path in own if path not in first), key=lambda path: _rank(texts[path]))
        if own:
            nav.append({name: [*first, *({short_title(texts[path]): path} for path in rest)]})
    return [*nav, *({short_title(texts[path]): path} for path in BACK if path in texts)]


def _rank(text: str) -> tuple[int, str]:
    """By `order:` of the front matter, then by title."""
    found = re.match(r"---\n(?:.*\n)*?order: (\d+)\n", text)
    return int(found[1]) if found else 100, short_title(text).lower()


def write(folder: Path, texts: dict[str, str]) -> None:
    """The pages as files; what lay there before is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
