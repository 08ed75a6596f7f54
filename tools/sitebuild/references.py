"""The references page: every source, with the pages that cite it."""

from collections.abc import Mapping

from .bibliography import Entry
from .citations import anchor, keys_in


def page(entries: Mapping[str, Entry], texts: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """The page, from `texts` (with docstrings) and titles of all pages by their path.

    Raises:
        ValueError: A page cites what is not in the bibliography.
    """
    citing: dict[str, list[str]] = {key: [] for key in entries}
    for path, text in texts.items():
        for key in keys_in(text):
            if key not in citing:
                raise ValueError(f"{path} cites [@{key}], which is not in references.bib.")
            citing[key].append(path)
    lines = ["# References", "", "Every source that a page or a docstring cites, and where. From `references.bib`.", ""]
    for key in sorted(entries, key=lambda key: (entries[key].short.lower(), key)):
        lines += [f"## {entries[key].short} {{#{anchor(key)}}}", "", _escaped(entries[key].full), ""]
        links = ", ".join(f"[{titles[path]}]({path})" for path in citing[key])
        lines += [f"Cited by {links}." if links else "Cited in the source alone.", ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("$", "\\$").replace("_", "\\_").replace("L\\$\\_0\\$", "L0")
