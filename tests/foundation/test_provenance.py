"""Where numbers come from, threads, and errors."""

import json
import re
import subprocess
import sys
from datetime import datetime
from importlib.machinery import ModuleSpec

import pytest

from infoflow.foundation import missing_extra, provenance, version


def test_provenance_is_json_and_complete():
    origin = json.loads(json.dumps(provenance()))
    assert {"infoflow", "python", "packages", "platform", "processor", "cores", "command", "time"} <= origin.keys()
    assert origin["packages"]["torch"] not in ("", "absent")
    assert datetime.fromisoformat(origin["time"]).utcoffset().total_seconds() == 0


@pytest.mark.parametrize(
    ("arguments", "module", "typed"),
    [
        (["/home/me/.venv/bin/infoflow", "study", "quick"], None, "infoflow study quick"),
        (["/lib/infoflow/__main__.py", "study"], "infoflow.__main__", "python -m infoflow study"),
        (["experiments/run.py", "my corpus"], None, "python experiments/run.py 'my corpus'"),
        (["", "study"], None, ""),
    ],
)
def test_the_command_can_be_typed_again(arguments, module, typed, monkeypatch):
    from infoflow.foundation import provenance

    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", module and ModuleSpec(module, None))
    assert provenance()["command"] == typed


def test_absent_package():
    assert version("surely-no-such-package") == "absent"


def test_missing_extra_names_feature_and_command():
    error = missing_extra("The t-SNE map", "openTSNE", "maps")
    assert re.fullmatch(r'The t-SNE map needs openTSNE. Install it: \S+ -m pip install "opentsne>=[\d.]+"', str(error))


def test_threads(monkeypatch):
    import torch

    from infoflow.foundation import UserError, available_cores, set_threads

    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    try:
        assert set_threads() == 1
        assert set_threads(2) == torch.get_num_threads() == 2
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert set_threads() == available_cores()
        with pytest.raises(UserError, match="--threads must be a whole number from 1"):
            set_threads(0)
        monkeypatch.setenv("OMP_NUM_THREADS", "2,1")  # OpenMP's list, one number per nesting level
        assert set_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "many")
        with pytest.raises(UserError, match="OMP_NUM_THREADS must be a whole number"):
            set_threads()
    finally:
        torch.set_num_threads(before)


def test_foundation_is_imported_without_torch():
    """Help must come in under a second."""
    code = "import sys, infoflow.foundation; print('torch' in sys.modules, 'pandas' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["False", "False"]
