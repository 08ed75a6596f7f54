"""Model folders as somebody without infoflow uses them."""

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_SAID = ("Loading weights", "[transformers] Input ids are automatically padded")  # the second by every Longformer
_SERVER = """
import importlib, json, os, sys, traceback, warnings
from transformers import dynamic_module_utils
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.bert import modeling_bert
from transformers.models.marian import modeling_marian

def answer(folder, script, out):
    os.chdir(folder)
    dynamic_module_utils.HF_MODULES_CACHE = os.path.join(out, "modules")
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(out, name), os.O_WRONLY | os.O_CREAT), number)
    try:
        exec(compile(script, "<card>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        importlib.import_module(name)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = answer(*json.loads(line))
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def run_card(folder: Path, *, needs_infoflow: bool = False) -> str:
    """What the Python block of a folder's README.md prints there; fails if it warns, or loads infoflow."""
    (block,) = re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return run_plain(block if needs_infoflow else f"import sys\nsys.modules['infoflow'] = None\n{block}", folder)


def run_plain(script: str, folder: Path, *imported: str) -> str:
    """What a script prints in a process that has imported transformers, and `imported`, and nothing of infoflow.

    Fails if the script warns.
    """
    server = _server(*imported)
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as out:
        server.stdin.write(json.dumps([str(folder), script, out]) + "\n")
        server.stdin.flush()
        code = server.stdout.readline().strip()
        printed, complaints = (Path(out, name).read_text() for name in ("out", "err"))
    assert code == "0", complaints
    said = [line for line in complaints.splitlines() if line and not line.startswith(_SAID)]
    assert not said, complaints
    return printed


@cache
def _server(*imported: str) -> subprocess.Popen[str]:
    """One process that imports transformers once, and forks for each script; it ends with this one."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment |= {"TRANSFORMERS_VERBOSITY": "warning"}
    command = [sys.executable, "-W", "error", "-c", _SERVER, *imported]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
