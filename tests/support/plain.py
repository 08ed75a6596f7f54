"""Model folders as somebody without infoflow uses them."""

import os
import re
import subprocess
import sys
from pathlib import Path

_SAID = ("Loading weights", "[transformers] Input ids are automatically padded")  # the second by every Longformer


def run_card(folder: Path, *, needs_infoflow: bool = False) -> str:
    """What the Python block of a folder's README.md prints there; fails if it warns, or loads infoflow."""
    (block,) = re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    script = block if needs_infoflow else f"import sys\nsys.modules['infoflow'] = None\n{block}"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment |= {"HF_MODULES_CACHE": str(folder.parent / ".modules"), "TRANSFORMERS_VERBOSITY": "warning"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line and not line.startswith(_SAID)]
    assert not said, done.stderr
    return done.stdout
