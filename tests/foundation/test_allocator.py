"""Memory that is freed is kept, where the C library can be told."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from infoflow.foundation import keep_freed_memory
import numpy as np

if sys.argv[1] == "kept":
    assert keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    for _ in range(10):
        [np.ones(1 << 20) for _ in range(8)]  # 8 MB each

work()
before = faults()
work()
print(faults() - before)
"""


def pages_filled(how: str) -> int:
    answer = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    return int(answer.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_the_same_memory_is_used_again() -> None:
    assert pages_filled("kept") < 100
    assert pages_filled("given back") > 1_000  # of the 163,840 of 4 KB: some may be larger
