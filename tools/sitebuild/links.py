"""Links of pages that lead out of the site, to files of the repository, become their names."""

import posixpath
import re

# Code first where it begins first, so that what looks like a link inside it is left.
_PIECES = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)\s*$"
    r"|`[^`\n]+`"
    r"|(?<!\!)\[(?P<text>[^\]\n]*(?:\n[^\]\n]+)?)\]\((?P<target>[^)\s]+)\)",
    flags=re.MULTILINE | re.DOTALL,
)


def kept_inside(text: str, path: str, known: set[str], moved: dict[str, str]) -> str:
    """The page at `path`, its links to pages that have `moved` set right, and those to other files named as code."""

    def replaced(match: re.Match[str]) -> str:
        if match["target"] is None:
            return match[0]
        target, _, fragment = match["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        where = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        where = moved.get(where, where)
        if where in known:
            relative = posixpath.relpath(where, posixpath.dirname(path) or ".")
            return f"[{match['text']}]({relative}{'#' + fragment if fragment else ''})"
        name = where.removeprefix("../").removeprefix("docs/")
        return f"`{name}`" if name in match["text"] else f"{match['text']} (`{name}` in the repository)"

    return _PIECES.sub(replaced, text)
