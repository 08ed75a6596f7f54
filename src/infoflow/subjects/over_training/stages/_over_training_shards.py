"""Several machines measure shares of the checkpoints of one training; merged, they form one run."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, atomic_folder
from infoflow.results import RunFolder

SHARD_KIND = "over-training-shard"


def of_shard(number: int, shard: tuple[int, int]) -> range:
    """Indices of a shard's stages: every n-th, which spreads early and late checkpoints.

    Raises:
        UserError: There is no such shard.
    """
    part, parts = shard
    if not 0 <= part < parts:
        raise UserError(f"--shard must be i/n with 0 ≤ i < n. Got {part}/{parts}. Shards count from 0.")
    return range(part, number, parts)


def is_shard(folder: Path | str) -> bool:
    """Whether `infoflow over-training --shard` wrote the folder."""
    return RunFolder.existing(folder).read().get("kind") == SHARD_KIND


def gather_shards(folders: Sequence[Path | str], out: Path) -> dict[str, Any]:
    """Copy the results of each shard to `out/work`, named by what determines them; returns their common plan.

    Raises:
        UserError: A folder holds no shard, or shards are missing, duplicated, or from different commands or corpora.
    """
    runs = [RunFolder.existing(folder) for folder in folders]
    manifests = [run.read() for run in runs]
    for run, manifest in zip(runs, manifests, strict=True):
        if manifest.get("kind") != SHARD_KIND:
            raise UserError(f"{run.path} was not written by `infoflow over-training --shard`.")
    first = manifests[0]
    for run, manifest in zip(runs, manifests, strict=True):
        for name, what in (("plan", "another command"), ("corpus", "other sentences")):
            if manifest.get(name) != first.get(name):
                raise UserError(
                    f"{run.path} was made with {what} than {runs[0].path}. Merge shards of the same command."
                )
    _check_complete([tuple(manifest["shard"]) for manifest in manifests])
    for run in runs:
        for source in _results(run.path / "work"):
            target = out / "work" / source.relative_to(run.path / "work")
            if not target.exists():
                with atomic_folder(target) as folder:
                    shutil.copytree(source, folder, dirs_exist_ok=True)
    return first["plan"]


def _check_complete(shards: Sequence[tuple[int, int]]) -> None:
    parts = {parts for _, parts in shards}
    if len(parts) > 1:
        raise UserError(
            f"The shards are parts of {' and of '.join(map(str, sorted(parts)))}. Merge shards of the same command."
        )
    numbers = [part for part, _ in shards]
    if len(set(numbers)) < len(numbers):
        raise UserError(f"Shards must be distinct. Got {', '.join(map(str, sorted(numbers)))}.")
    (whole,) = parts
    if missing := sorted(set(range(whole)) - set(numbers)):
        raise UserError(
            f"Shards {', '.join(map(str, missing))} of {whole} are missing (counted from 0). Name all of them."
        )


def _results(work: Path) -> Iterator[Path]:
    """The folders of results, each named by what determines them."""
    for kind in sorted(path for path in work.iterdir() if path.is_dir()) if work.exists() else ():
        yield from sorted(path for path in kind.iterdir() if path.is_dir())
