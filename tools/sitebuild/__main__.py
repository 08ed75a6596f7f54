"""Builds the site into `site/`.

PYTHONPATH=tools:src .venv/bin/python -m sitebuild
"""

import os
import subprocess
import sys
from pathlib import Path

from . import search, staging

ROOT = Path(__file__).parents[2]


def build(root: Path) -> int:
    """Stage all pages, run the generator strictly; its exit code."""
    found = staging.texts(root)
    config = staging.stage(root, root / "build", found)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(config)]
    paths = os.pathsep.join([str(root / "tools"), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": paths}, check=False)
    if done.returncode == 0:
        search.rank(root / "site", found)
    return done.returncode


def main() -> None:
    if code := build(ROOT):
        sys.exit(code)
    print("The site is in site/. Serve it: python3 -m http.server --bind 127.0.0.1 --directory site 8000")
    print("and open http://127.0.0.1:8000/ ; pages open from disk too, without the search.")


if __name__ == "__main__":
    main()
