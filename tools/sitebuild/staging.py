"""Gathers every page: those that are written, and those that follow from the source."""

import re
import shutil
from pathlib import Path

import yaml

from . import api, bibliography, findings, gallery, links, methods, pages, pictures, references, schemas

# Pages that stand in the folder itself, and where the site has them.
MOVED = {
    "adaptation.md": "guides/adaptation.md",
    "checkpoints.md": "guides/checkpoints.md",
    "context.md": "guides/context.md",
    "explorer.md": "guides/explorer.md",
    "architecture.md": "background/architecture.md",
    "machines.md": "guides/machines.md",
    "notebooks.md": "guides/notebooks.md",
    "objectives.md": "guides/objectives.md",
    "over-scale.md": "guides/over-scale.md",
    "over-training.md": "guides/over-training.md",
    "probing.md": "guides/probing.md",
    "pruning.md": "guides/pruning.md",
    "retrieval.md": "guides/retrieval.md",
    "transplanting.md": "guides/transplanting.md",
}
CONFIG = ".site.yml"  # mkdocs.yml and the navigation; beside it, since generators stay below their configuration
ASSETS = ("site.css", "site.js", "search.js", "report.png", "as-published.html")


def texts(root: Path) -> dict[str, str]:
    """Every page of the site by path, without references, which follow from them."""
    found = {}
    for path in sorted((root / "docs").rglob("*.md")):
        name = path.relative_to(root / "docs").as_posix()
        text = path.read_text(encoding="utf-8")
        is_method = name.startswith("methods/") and name != "methods/index.md"
        found[MOVED.get(name, name)] = methods.page(text, root) if is_method else text
    tables = {path: schemas.described(schema) for path, schema in schemas.exported().items()}
    found |= {f"api/{name}": text for name, text in api.pages(root / "src", tables)}
    found["methods/index.md"] = methods.index(found)
    found |= gallery.pages(root)
    found["findings.md"] = findings.page()
    found["changelog.md"] = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return found


def stage(root: Path, build: Path, found: dict[str, str]) -> Path:
    """Write pages, assets and configuration into `build`; return the configuration's path."""
    known = {*found, "references.md", *ASSETS}
    origins = {new: old for old, new in MOVED.items()}
    moved = {**MOVED, **{f"docs/{old}": new for old, new in MOVED.items()}}
    done = {}
    for path, text in found.items():
        here = origins.get(path, path)
        inside = links.kept_inside(text, here, known, moved)
        done[path] = _shifted(inside, here, path) if here != path else inside
    drawn: set[str] = set()
    for path, text in done.items():
        done[path], found_there = pictures.brought_in(text, path)
        drawn |= found_there
    docstrings = {
        f"api/{room}.md": _sources(root / "src" / "infoflow" / room.replace(".", "/"))
        for room in api.rooms(root / "src")
    }
    cited = {path: text + docstrings.get(path, "") for path, text in done.items()}
    titles = {path: pages.title(text) for path, text in done.items()}
    done["references.md"] = references.page(bibliography.read(root / "references.bib"), cited, titles)
    pages.write(build / "docs", done)
    for name in ASSETS:
        shutil.copyfile(root / "docs" / name, build / "docs" / name)
    pictures.copy(drawn, root, build / "docs")
    gallery.downloads(root, build / "docs" / "gallery")
    settings = {
        "INHERIT": "mkdocs.yml",
        "docs_dir": (build / "docs").relative_to(root).as_posix(),
        "nav": pages.navigation(done),
    }
    config = root / CONFIG
    config.write_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return config


def _shifted(text: str, old: str, new: str) -> str:
    """Relative links of a page that the site has one folder deeper."""
    depth = new.count("/") - old.count("/")
    folder = new.rsplit("/", 1)[0] + "/"

    def replaced(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or target.startswith("#"):
            return match[0]
        return f"{match[1]}({target.removeprefix(folder) if target.startswith(folder) else '../' * depth + target})"

    return re.sub(r"(\[[^\]]*\])\(([^)\s]+)\)", replaced, text)


def _sources(room: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(room.rglob("*.py")))
