"""The index of the search: guides come first, then methods; names of the API and claims come after both.

The search ranks matches in titles first, by place, and then by the order of the index. So guides get their keywords
(`keywords:` in the front matter) in front of their titles, methods the names of their tables behind them, and titles in
references become part of their path.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FIRST = ("guides/", "start.html", "index.html", "methods/", "gallery/", "extend/", "background/")
_REFERENCE = ("api/", "decisions/", "findings.html", "references.html", "changelog.html")


def rank(site: Path, texts: Mapping[str, str]) -> None:
    """Rewrite the built site's index; `texts`: its pages by path."""
    path = site / "search.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    index["items"] = ranked(index["items"], keywords(texts))
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def keywords(texts: Mapping[str, str]) -> dict[str, str]:
    """The keywords of pages that have some, by the page's address."""
    found = {path: re.match(r"---\n(?:.*\n)*?keywords: (.+)\n(?:.*\n)*?---\n", text) for path, text in texts.items()}
    return {path.replace(".md", ".html"): match[1].strip() for path, match in found.items() if match}


def ranked(items: list[dict[str, Any]], words: Mapping[str, str]) -> list[dict[str, Any]]:
    """The entries of the index in their order, with titles that rank as they should."""
    return sorted((_titled(item, words) for item in items), key=lambda item: _place(item["location"]))


def _titled(item: dict[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    where, title = item["location"], item["title"]
    if where in words:
        named = f"{words[where]}: {title}"
        return {**item, "title": named, "path": [*item["path"][:-1], named]}
    if where.startswith("methods/") and "#" not in where:
        return {**item, "title": f"{title} ({Path(where).stem})"}
    if where.startswith(_REFERENCE):
        return {
            **item,
            "title": item["path"][0],
            "path": [*item["path"], re.sub(r"\s*<small>.*</small>|<.*?>", "", title)],
        }
    return item


def _place(location: str) -> int:
    return next((place for place, start in enumerate(_FIRST) if location.startswith(start)), len(_FIRST))
