"""The gallery: scripts in percent format, executed as notebooks, written as pages. Executions are cached by content."""

import base64
import hashlib
import html
import json
import os
import re
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SECONDS = 600  # of the wall, for one script; its goal is 60 of CPU
_CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?.*\n", flags=re.MULTILINE)


def cells(script: str) -> list[tuple[str, str]]:
    """(kind, text) of each cell: "markdown", its comment marks gone, or "code"."""
    marks = list(_CELL.finditer(script))
    found = []
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        text = script[mark.end() : following.start() if following else None].strip("\n")
        if mark["kind"]:
            found.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE)))
        elif text:
            found.append(("code", text))
    return found


def notebook(script: str) -> Any:
    """The script as a notebook that was not run."""
    made = nbformat.v4.new_notebook()
    new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    made.cells = [new[kind](text) for kind, text in cells(script)]
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"  # the same file for the same script
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def executed(path: Path, cache: Path) -> Any:
    """The notebook of the script, run in an empty folder without network, or as it was run before.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails; so does the build.
    """
    script = path.read_text(encoding="utf-8")
    key = hashlib.sha256(f"{version('infoflow')}\n{script}".encode()).hexdigest()[:24]
    kept = cache / f"{path.stem}-{key}.ipynb"
    if kept.exists():
        return nbformat.read(kept, as_version=4)
    made = notebook(script)
    offline = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
    }
    with tempfile.TemporaryDirectory(prefix="gallery-") as folder:
        client = NotebookClient(made, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute(env={**os.environ, **offline})
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(made, kept)
    return made


def pages(root: Path) -> dict[str, str]:
    """The pages of the gallery, and its index with a picture of each."""
    found, entries = {}, []
    for path in sorted((root / "docs" / "gallery").glob("*.py")):
        ran = executed(path, root / "build" / "gallery")
        text, picture = page(ran, path.stem)
        found[f"gallery/{path.stem}.md"] = text
        heading = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
        assert heading, f"{path.name} begins with no heading"
        entries.append((path.stem, heading[1], picture))
    found["gallery/index.md"] = _index(entries)
    return found


def _index(entries: list[tuple[str, str, str]]) -> str:
    lines = [
        "# Gallery",
        "",
        "Scripts that run offline in about a minute, with all that they show. Each can be had as a notebook.",
    ]
    for name, title, picture in entries:
        lines += ["", f"## [{title}]({name}.md)", ""]
        if picture:
            lines += [
                f'<div class="figure thumbnail"><img alt="First figure of: {html.escape(title)}" src="{picture}"></div>'
            ]
    return "\n".join([*lines, ""])


def page(ran: Any, name: str) -> tuple[str, str]:
    """Markdown of an executed notebook, and the address of its first picture."""
    lines, first = [], ""
    for cell in ran.cells:
        if cell.cell_type == "markdown":
            lines += [cell.source, ""]
            continue
        lines += ["```python", cell.source, "```", ""]
        for output in cell.outputs:
            shown = _shown(output)
            first = first or next(iter(re.findall(r'<img[^>]* src="(data:image/svg[^"]+)"', shown)), "")
            lines += [shown, ""] if shown else []
    notebook, script = (
        f'<a href="{name}.ipynb" download>as a notebook</a>',
        f'<a href="{name}.py" download>as a script</a>',
    )
    links = f"<p>This page {notebook}, or {script}.</p>"
    return "\n".join([*lines, links, ""]), first


def _shown(output: Any) -> str:
    """One output as HTML on few lines, so that Markdown leaves it alone."""
    data = output.get("data", {})
    if "text/html" in data:
        return f'<div class="figure output">{_flat(data["text/html"])}</div>'
    if "image/png" in data:
        raw = data["image/png"].replace("\n", "")
        assert base64.b64decode(raw)
        return (
            f'<div class="figure output"><img alt="Output of the cell above" src="data:image/png;base64,{raw}"></div>'
        )
    text = output.get("text") if output.output_type == "stream" and output.name == "stdout" else data.get("text/plain")
    return f'<pre class="output">{_flat(html.escape(text.rstrip()), keep=True)}</pre>' if text else ""


def _flat(text: str, keep: bool = False) -> str:
    """HTML without empty lines, at which Markdown would end it, and without what formulas and citations look for."""
    text = text.replace("$", "&#36;").replace("[@", "&#91;@").replace("`", "&#96;")
    return text.replace("\n", "&#10;") if keep else re.sub(r"\s*\n\s*", " ", text)


def downloads(root: Path, target: Path) -> None:
    """Notebooks, with their outputs, and scripts beside the pages."""
    for path in sorted((root / "docs" / "gallery").glob("*.py")):
        ran = executed(path, root / "build" / "gallery")
        (target / f"{path.stem}.ipynb").write_text(json.dumps(ran, indent=1, ensure_ascii=False), encoding="utf-8")
        (target / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
