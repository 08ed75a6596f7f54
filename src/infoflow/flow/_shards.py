"""`--shard i/n` and `merge`: the same pass in independent jobs, for a batch queue without a process group."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, atomic_folder, digest, file_digest, read_object
from infoflow.models import Model

from ._measure import AbstractMeasure, Failures, PassOptions, describe_measure
from ._pass import Pass
from ._runner import Measured, accepted_measures, applicable, finish

_MANIFEST = "shard.json"
_KINDS = {"job": str, "shard": int, "num_shards": int, "sha256": dict}


def measure_shard(
    model: Model,
    corpus: Corpus,
    measures: Sequence[AbstractMeasure],
    shard: int,
    num_shards: int,
    out: Path,
    options: PassOptions | None = None,
) -> Path:
    """Run the batches of shard `shard` of `num_shards` (from 0) and write their sums to the folder `out`."""
    measures = accepted_measures(measures)
    if not 0 <= shard < num_shards:
        raise UserError(f"--shard must be i/n with 0 ≤ i < n. Got {shard}/{num_shards}. Shards count from 0.")
    options = options or PassOptions()
    with atomic_folder(out) as folder:
        failures = Failures(model.name, keep_going=False)
        run = Pass(model, corpus, applicable(model, measures, failures), options, folder / "work")
        run.run(shard, num_shards)
        for name, arrays in run.state_dict().items():
            np.savez(folder / f"{name}.npz", **arrays)
        key = job_key(model, corpus, measures, options)
        sums = {path.name: file_digest(path) for path in sorted(folder.glob("*.npz"))}
        manifest = {"job": key, "shard": shard, "num_shards": num_shards, "sha256": sums}
        (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(folder / "work", ignore_errors=True)  # only token samples create one
    return out


def merge_shards(
    model: Model,
    corpus: Corpus,
    measures: Sequence[AbstractMeasure],
    shards: Sequence[Path],
    folder: Path,
    options: PassOptions | None = None,
) -> Measured:
    """The result of the whole pass from its shards' folders, equal to that of a single process."""
    measures, options = accepted_measures(measures), options or PassOptions()
    _check_complete([read_manifest(shard) for shard in shards], job_key(model, corpus, measures, options))
    failures = Failures(model.name, keep_going=len(measures) > 1)
    chosen = applicable(model, measures, failures)
    run = Pass(model, corpus, chosen, options, folder, failures=failures)
    run.load([_read_states(shard) for shard in sorted(shards, key=lambda path: read_manifest(path)["shard"])])
    return finish(run, chosen, failures)


def job_key(model: Model, corpus: Corpus, measures: Sequence[AbstractMeasure], options: PassOptions) -> str:
    """Key of everything that a pass depends on."""
    return digest([model.digest, corpus.digest, [describe_measure(each) for each in measures], options.key])


def read_manifest(shard: Path) -> dict[str, Any]:
    """The manifest of a shard: the measures, their options, and checksums."""
    path = shard / _MANIFEST
    if not path.exists():
        raise UserError(f"{shard} holds no shard: it has no {_MANIFEST}. Give the folders written with --shard.")
    try:
        manifest = read_object(path)
        if not all(isinstance(manifest[name], kind) for name, kind in _KINDS.items()):
            raise ValueError("entries of wrong types")
    except OSError as error:
        raise _damaged(shard, f"{_MANIFEST}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(shard, f"{_MANIFEST}: {error}") from None
    return manifest


def _damaged(shard: Path, what: str) -> UserError:
    return UserError(f"The shard {shard} is damaged ({what[:200]}). Remove that folder, and run its shard again.")


def _check_complete(manifests: list[dict[str, Any]], key: str) -> None:
    numbers = sorted({manifest["num_shards"] for manifest in manifests})
    if len(numbers) != 1:
        raise UserError(f"Merging needs the shards of one command. Got shards of {numbers or 'none'} parts.")
    num_shards = numbers[0]
    present = sorted(manifest["shard"] for manifest in manifests)
    if present != list(range(num_shards)):
        raise UserError(f"Merging needs the shards 0..{num_shards - 1}, each once. Got {', '.join(map(str, present))}.")
    if {manifest["job"] for manifest in manifests} != {key}:
        raise UserError("The shards belong to different models, corpora or settings. Run them with the same command.")


def _read_states(shard: Path) -> dict[str, dict[str, np.ndarray]]:
    states, paths = {}, sorted(path for path in shard.glob("*.npz") if path.is_file())
    written = read_manifest(shard)["sha256"]
    if odd := sorted(written.keys() ^ {path.name for path in paths}):
        raise _damaged(shard, f"{odd[0]} is {'missing' if odd[0] in written else 'not one of its files'}")
    for path in paths:
        if file_digest(path) != written[path.name]:
            raise _damaged(shard, f"{path.name} has changed since it was written")
        with np.load(path, allow_pickle=False) as arrays:
            states[path.stem] = dict(arrays)
    return states
