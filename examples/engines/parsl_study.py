"""A study run by Parsl: each stage is an app that waits for those it needs.

    python examples/engines/parsl_study.py study.toml runs/mine

After an interruption run the same command again: finished stages are not repeated. Replace the executor by Parsl's one
for your cluster (SLURM, Kubernetes, ...), whose machines must see the run folder.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

import parsl
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor


@parsl.bash_app
def stage(run: str, key: str, inputs: Sequence = ()) -> str:
    """Parsl waits for all `inputs`, the futures of other stages."""
    return f"infoflow stage {run} {key}"


def main(plan: str, run: str) -> None:
    """Run every stage, then write the report."""
    listed = subprocess.run(["infoflow", "stages", plan, "--out", run, "--json"], check=True, stdout=subprocess.PIPE)
    with parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=2)], strategy="none")):
        futures: dict = {}
        for one in json.loads(listed.stdout):  # each after those that it needs
            if not one["done"]:
                needs = [futures[key] for key in one["needs"] if key in futures]
                futures[one["key"]] = stage(run, one["key"], inputs=needs)
        for future in futures.values():
            future.result()
    subprocess.run(["infoflow", "study", plan, "--out", run], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
