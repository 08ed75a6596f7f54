"""What would end the machine is refused before it begins, with the numbers."""

import subprocess
import sys

import pytest

from infoflow.foundation import UserError, available_memory, require_memory

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
from infoflow.foundation import available_memory
print(available_memory())
"""


def test_what_is_there_is_enough_and_more_is_not() -> None:
    available = available_memory()
    assert available is not None
    assert 1e7 < available < 1e14
    require_memory(1e6, "A thing needs", "Make it smaller.")
    with pytest.raises(
        UserError,
        match=r"A thing needs: at least 1,000,000.0 GB of memory. This machine has [\d.]+ GB available. Shrink",
    ):
        require_memory(1e15, "A thing needs", "Shrink it.")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_shells_limit_counts() -> None:
    answer = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    assert 0 < int(answer.stdout) <= 3 << 30
