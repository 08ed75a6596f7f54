"""A study run by SLURM: each stage is a job that starts when those it needs have succeeded.

    python examples/engines/slurm_study.py study.toml runs/mine

The run folder must lie where all nodes see it. After an interruption run the same command again: finished stages are
not repeated. A stage that SLURM requeues continues where it stopped.
"""

import json
import math
import subprocess
import sys


def submit(command: str, after: list[str], *options: str) -> str:
    """The number of a new job that waits for others."""
    waits = ["--kill-on-invalid-dep=yes", f"--dependency=afterok:{':'.join(after)}"] if after else []
    job = ["sbatch", "--parsable", "--requeue", "--signal=B:TERM@120", *waits, *options, f"--wrap=exec {command}"]
    return subprocess.run(job, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(plan: str, run: str) -> None:
    """Submit every stage, then the report."""
    listed = subprocess.run(["infoflow", "stages", plan, "--out", run, "--json"], check=True, stdout=subprocess.PIPE)
    jobs: dict[str, str] = {}
    for one in json.loads(listed.stdout):  # each after those that it needs
        if not one["done"]:
            memory = (one["memory"] or 4 * 10**9) // 10**6
            options = [f"--job-name={one['key']}", f"--cpus-per-task={one['threads']}", f"--mem={memory}M"]
            options += [f"--gres=gpu:{math.ceil(one['gpus'])}"] if one["gpus"] else []
            after = [jobs[key] for key in one["needs"] if key in jobs]
            jobs[one["key"]] = submit(f"infoflow stage {run} {one['key']} --threads {one['threads']}", after, *options)
    print("Report:", submit(f"infoflow study {plan} --out {run}", list(jobs.values()), "--job-name=report"))


if __name__ == "__main__":
    main(*sys.argv[1:3])
