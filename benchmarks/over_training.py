"""What k checkpoints of one training cost to measure, beside k times one of them.

    python benchmarks/over_training.py [--checkpoints 8] [--rounds 3]

One masked LM is trained with its checkpoints kept. Each round measures all of them in one process, and one of them in
another process, both with the light tables; ratios of CPU time are medians over rounds. What is shared (imports,
sentences, tokenisation, counts) is paid once by the first and k times by k of the second. The limit is 1.
"""

import argparse
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from infoflow.foundation import SilentDisplay, set_threads, use_display
from infoflow.studies import AnalysisPlan, CheckpointsPlan, CorpusPlan, StudyPlan, graph, train_model
from infoflow.subjects.alignment.settings import AlignmentPlan
from infoflow.subjects.over_training.stages import MeasureCheckpoint
from infoflow.training import ModelConfig, TrainConfig

_CHILD = "--measure"


def plan(checkpoints: int) -> StudyPlan:
    return StudyPlan(
        objectives=("masked-lm",),
        corpus=CorpusPlan(name="grammar:6000", vocabulary=400),
        model=ModelConfig(width=64, layers=4, heads=4, feedforward=256),
        training=TrainConfig(updates=40, batch_tokens=512, warmup=1),
        analysis=AnalysisPlan(sentences=1000),
        alignment=AlignmentPlan(on=False),
        checkpoints=CheckpointsPlan(schedule=f"log:{checkpoints}", sentences=1000, occurrences=4000),
    )


def measure(folder: Path, checkpoints: int, number: int) -> None:
    """Measure the first `number` checkpoints after step 0, and print the CPU seconds of this process."""
    set_threads(1)
    with use_display(SilentDisplay()):
        stages = graph(plan(checkpoints), folder).of(MeasureCheckpoint)
        for stage in stages[1 : 1 + number]:
            stage.run()
    print(time.process_time())


def seconds(trained: Path, checkpoints: int, number: int) -> float:
    """In a process and a copy of the run folder of its own."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(trained, Path(copy) / "run")
        arguments = [sys.executable, __file__, _CHILD, str(Path(copy) / "run"), str(checkpoints), str(number)]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    return float(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoints", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    k = asked.checkpoints
    with tempfile.TemporaryDirectory() as folder, use_display(SilentDisplay()):
        train_model("masked-lm", dataclasses.replace(plan(k)), out=Path(folder) / "run")
        pairs = [
            (seconds(Path(folder) / "run", k, k), seconds(Path(folder) / "run", k, 1)) for _ in range(asked.rounds)
        ]
    for together, alone in pairs:
        print(f"{k} checkpoints {together:.1f} s, one {alone:.1f} s CPU: {together / (k * alone):.2f} of {k} times one")
    print(f"median ratio {median(together / (k * alone) for together, alone in pairs):.2f} (limit 1)")


if __name__ == "__main__":
    if _CHILD in sys.argv[1:]:
        measure(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
