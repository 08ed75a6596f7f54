"""The gallery: the notebooks of `examples/` as pages, with the outputs that they carry.

PYTHONPATH=tools:src .venv/bin/python -m sitebuild.gallery runs/gallery     # run them again

The folder holds what they read: `runs/quick`, `all-MiniLM-L6-v2` and `my-corpus.txt`.
"""

import ast
import base64
import hashlib
import html
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("run", "own-model-and-corpus", "one-sentence")
_SECONDS = 900  # for one notebook
_FRAME = re.compile(r"<iframe .*?</iframe>", flags=re.DOTALL)
INSTEAD = "<p><em>Run the cell to see the interactive page.</em></p>"


def main(folder: Path) -> None:
    """Run the notebooks in `folder`, offline, and keep their outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails.
    """
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    for name in NAMES:
        path = EXAMPLES / f"{name}.ipynb"
        book = nbformat.read(path, as_version=4)
        client = NotebookClient(book, timeout=_SECONDS, kernel_name="python3", record_timing=False,
                                resources={"metadata": {"path": str(folder)}})  # fmt: skip
        client.execute(env={**os.environ, **offline})
        path.write_text(written(kept(book)), encoding="utf-8")


def kept(book: Any) -> Any:
    """The notebook with those of its outputs that a file should hold, and with the digest of its cells.

    Progress, warnings, second formats of a picture and interactive frames are left out.
    """
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [_small(output) for output in cell.outputs if _is_kept(output)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}, "infoflow": {"cells": digest(book)}}
    return nbformat.from_dict(book)


def _is_kept(output: Any) -> bool:
    return output.get("name") != "stderr" and output.output_type != "display_data"


def _small(output: Any) -> Any:
    data = output.get("data", {})
    if "text/html" in data:
        data.pop("image/png", None)
        data["text/html"] = _FRAME.sub(INSTEAD, data["text/html"])
    return output


def digest(book: Any) -> str:
    """The digest of the cells' sources: outputs that carry another one are stale."""
    sources = json.dumps([[cell["cell_type"], "".join(cell["source"])] for cell in book["cells"]])
    return hashlib.sha256(sources.encode()).hexdigest()[:16]


def shows(source: str) -> bool:
    """Whether a code cell shows something: it prints, or ends with an expression."""
    body = ast.parse(source).body
    calls = (node.func for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.Call))
    return isinstance(body[-1], ast.Expr) or any(isinstance(name, ast.Name) and name.id == "print" for name in calls)


def written(book: Any) -> str:
    return nbformat.writes(book, indent=1).rstrip("\n") + "\n"


def pages(root: Path) -> dict[str, str]:
    """The pages of the gallery, and its index with a picture of each."""
    found, entries = {}, []
    for name in NAMES:
        text, picture = page(nbformat.read(root / "examples" / f"{name}.ipynb", as_version=4), name)
        found[f"gallery/{name}.md"] = text
        heading = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
        assert heading, f"{name}.ipynb begins with no heading"
        entries.append((name, heading[1], picture))
    found["gallery/index.md"] = _index(entries)
    return found


def _index(entries: list[tuple[str, str, str]]) -> str:
    lines = [
        "# Gallery",
        "",
        "Notebooks with their outputs: of a study with the preset `quick`, and of the pretrained encoder MiniLM.",
    ]
    for name, title, picture in entries:
        lines += ["", f"## [{title}]({name}.md)", ""]
        if picture:
            lines += [
                f'<div class="figure thumbnail"><img alt="First figure of: {html.escape(title)}" src="{picture}"></div>'
            ]
    return "\n".join([*lines, ""])


def page(book: Any, name: str) -> tuple[str, str]:
    """Markdown of a notebook, and the address of its first picture."""
    lines, first = [], ""
    for cell in book.cells:
        if cell.cell_type == "markdown":
            lines += [cell.source, ""]
            continue
        lines += ["```python", cell.source, "```", ""]
        for output in cell.outputs:
            shown = _shown(output)
            first = first or next(iter(re.findall(r'<img[^>]* src="(data:image/svg[^"]+)"', shown)), "")
            lines += [shown, ""] if shown else []
    lines += [f'<p>This page <a href="{name}.ipynb" download>as a notebook</a>.</p>', ""]
    return "\n".join(lines), first


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
    """The notebooks beside their pages."""
    for name in NAMES:
        shutil.copyfile(root / "examples" / f"{name}.ipynb", target / f"{name}.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
