"""What a stage used of the processor, as the engine tells it at its end."""

import subprocess
import sys
import time
from dataclasses import dataclass, field

from infoflow.engine import Event, InTurn

BURN = "import time\nwhile time.process_time() < .5: pass"


@dataclass
class Stage:
    """Works for a while in a process of its own, or only waits."""

    key: str
    needs: tuple[str, ...] = ()
    cost: float = 1.0
    threads: int = 1
    resources: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.key

    def run(self) -> dict:
        if self.key == "work":
            subprocess.run([sys.executable, "-c", BURN], check=True)
        else:
            time.sleep(0.4)
        return {}


def test_cpu_seconds_are_those_of_the_stage_and_of_what_it_started() -> None:
    told: list[Event] = []
    with InTurn() as engine:
        endings = engine.run([Stage("work"), Stage("wait")], told.append)
    work, wait = endings["work"].usage, endings["wait"].usage
    assert work is not None
    assert wait is not None
    assert work.cpu_seconds >= 0.45  # the system counts in hundredths
    assert wait.cpu_seconds < 0.2 < wait.seconds
