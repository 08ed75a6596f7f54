"""What is recorded of a run: its tables, figures, sentences, claims, stages and weights, as hashes or in words."""

import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

TIMES = {"seconds", "cpu_seconds"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
UNSEEN = {"stages", "reproduce", "cite"}  # ids in the page of what a date, a path or a duration stands in
DURATION = re.compile(r"\b(\d+ h )?\d+ (s|min)\b")


def recorded(run: Path, missing: list[str]) -> dict[str, Any]:
    """Everything of one run."""
    from infoflow.studies import Run

    opened = Run.open(run)
    manifest = opened.folder.read()
    page = Page()
    page.feed((run / "report.html").read_text(encoding="utf-8"))
    blocks = page.recorded()
    figures = {
        name: {
            "id": figure.id,
            "question": figure.question,
            "answer": figure.answer,
            "caption": figure.caption,
            "how to read": figure.how_to_read,
            "data": columns(pd.DataFrame(figure.data)),
            **{f"page {part}": value for part, value in blocks.pop(figure.id, {}).items()},
        }
        for name, figure in opened.figures.items()
    }
    return {
        "tables": {path.stem: table(path) for path in sorted((run / "tables").glob("*.parquet"))},
        "figures": figures,
        "page": blocks,
        "claims": claims(run / "tables" / "findings.parquet"),
        "stages": stages(opened) if manifest.get("kind") == "study" and "plan" in manifest else {},
        "missing stages": missing,
        "failures": manifest.get("failures", []),
        "weights": weights(run),
    }


def missing_stages(run: Path) -> list[str]:
    """Labels of the stages of a finished study that the code would do again; the last one, which judges, always is."""
    from infoflow.studies import Run

    return [stage.label for stage in Run.open(run).stages.missing() if stage.kind != "check"]


def stages(run: Any) -> dict[str, str]:
    """The digest of each stage, by its label and its number among those of that label."""
    found: dict[str, str] = {}
    for stage in run.stages:
        number = sum(name.rpartition("#")[0] == stage.label for name in found)
        found[f"{stage.label}#{number}"] = stage.key
    return found


def table(path: Path) -> dict[str, Any]:
    """Hashes of all columns, with what the table says of itself."""
    stored = pq.read_table(path)
    schema = json.loads((stored.schema.metadata or {})[b"infoflow.schema"])
    frame = stored.to_pandas()
    return {
        "rows": len(frame),
        "version": schema["version"],
        "description": schema["description"],
        "columns": {one.pop("name"): one for one in schema["columns"]},
        "values": columns(frame),
    }


def timeless(frame: pd.DataFrame) -> pd.DataFrame:
    """Without what differs in every run: durations, which are columns or, in a recording, rows."""
    if {"unit", "statistic"} <= set(frame):
        frame = frame.loc[frame["unit"] != "s"]
    return frame.drop(columns=[name for name in frame if name in TIMES])


def columns(frame: pd.DataFrame) -> dict[str, str]:
    """The hash of each column, with its rows sorted, and of the order that they stood in."""
    frame = timeless(frame)
    texts = {str(name): [as_text(value) for value in frame[name]] for name in frame}
    names = sorted(texts)
    order = sorted(range(len(frame)), key=lambda row: [texts[name][row] for name in names])
    hashes = {name: hashed("\n".join(texts[name][row] for row in order)) for name in texts}
    return {**hashes, "order of rows": hashed(json.dumps(order))}


def as_text(value: Any) -> str:
    """A value to the last bit."""
    if isinstance(value, list | tuple | np.ndarray):
        return "[" + ",".join(as_text(one) for one in value) + "]"
    if isinstance(value, float | np.floating):
        return float(value).hex()
    return "" if value is None or value is pd.NA else str(value)


def hashed(text: str | bytes) -> str:
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:16]


def claims(path: Path) -> dict[str, dict[str, str]]:
    """Every claim with its verdict, numbers and words."""
    if not path.exists():
        return {}
    keys = ("id", "model", "architecture", "update")
    frame = pq.read_table(path).to_pandas()
    rows = [{str(name): written(value) for name, value in row.items()} for row in frame.to_dict("records")]
    return {" ".join(row[key] for key in keys if row.get(key, "") not in ("", "-1")): row for row in rows}


def written(value: Any) -> str:
    if isinstance(value, list | np.ndarray):
        return " ".join(written(one) for one in value)
    return repr(float(value)) if isinstance(value, float | np.floating) else as_text(value)


def weights(run: Path) -> dict[str, str]:
    files = sorted(path for path in run.rglob("*.safetensors") if path.is_file())
    return {path.relative_to(run).as_posix(): hashed(path.read_bytes()) for path in files}


def helps() -> dict[str, str]:
    """The help of every command."""
    from infoflow.cli import app

    return {" ".join(words): help_of(app, words) for words in [[], *command_names(app)]}


def command_names(app: Any) -> list[list[str]]:
    names = sorted(name for name in app if not name.startswith("-"))
    return [words for name in names for words in ([name], *([name, *rest] for rest in command_names(app[name])))]


def help_of(app: Any, words: list[str]) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100, color_system=None)
    app.help_print(words, console=console)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


class Page(HTMLParser):
    """A report by its parts: what it says, what it draws, and the rest of its markup.

    A part is a figure, a claim, or what stands in a section beside its figures.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: dict[str, dict[str, list[str]]] = {}
        self._open: list[tuple[str, str]] = [("", "page")]  # tags, and the part that each is in

    def recorded(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"text": part["text"], **{kind: hashed("".join(part[kind])) for kind in ("drawing", "markup")}}
            for name, part in self._parts.items()
            if name
        }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        part = self._part_of(tag, own)
        kind = "drawing" if tag == "svg" or self._within("svg") else "markup"
        self._note(part, kind, f"<{tag} {json.dumps(own, sort_keys=True)}>")
        if tag not in VOID:
            self._open.append((tag, part))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        while len(self._open) > 1 and (last := self._open.pop()[0]) != tag:
            assert last in {"p", "li", "dt", "dd", "tr", "td", "th"}, f"</{tag}> ends <{last}>"

    def handle_data(self, data: str) -> None:
        inside, part = self._open[-1][0], self._open[-1][1]
        if self._within("svg"):
            self._note(part, "drawing", data)
        elif inside in ("script", "style"):
            self._note(part, "markup", data)
        elif words := " ".join(data.split()):
            self._note(part, "text", DURATION.sub("TIME", words) if part == "top" else words)

    def _part_of(self, tag: str, attrs: dict[str, str | None]) -> str:
        """ "" of what is not recorded."""
        around, name = self._open[-1][1], attrs.get("id") or ""
        if not around or name in UNSEEN or (around == "methods" and tag in ("details", "pre")) or tag == "head":
            return ""
        return name if name and tag in ("figure", "section", "li", "header") else around

    def _within(self, tag: str) -> bool:
        return any(one == tag for one, _ in self._open)

    def _note(self, part: str, kind: str, text: str) -> None:
        self._parts.setdefault(part, {"text": [], "drawing": [], "markup": []})[kind].append(text)
