"""Bring home the models of a study from a machine that can train but send little: weights in half precision, in parts.

    python experiments/studies/paper/carry.py pack runs/paper --to bag      # there: bag.000, ... of at most 15 MiB
    python experiments/studies/paper/carry.py unpack bag --to runs/paper    # here; the study measures the models

What is trained travels, and tables of copies that were trained on (retrained, pruned, aligned), whose weights do not.
Checkpoints stay there, and so does what was measured of models that travel: those weights were not rounded. `--only
models` may be packed as soon as the models are trained, `--only tables` at the end; both are unpacked into one folder.
"""

import argparse
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load, save

MIB = 2**20
MODELS = ("run.json", "work/data.json", "work/tokenizers-*/**/*", "work/trained/**/*")
MODELS += ("work/training/*/log.jsonl", "work/training/*/model/**/*")
TABLES = ("work/retrained/**/*", "work/pruned/**/*", "work/aligned/**/*")
CARRIED = {"models": MODELS, "tables": TABLES, "all": MODELS + TABLES}


def pack(run: Path, to: Path, part_mib: float = 15, only: str = "all") -> list[Path]:
    """Write parts beside `to` (`to`.000, `to`.001, ...) that hold the study's trained "models", "tables" or "all".

    Weights of 32 bits are rounded to 16 (float16: a relative error of at most 2**-11); all else is as it was.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as bag:
        for path in _carried(run, CARRIED[only]):
            content = path.read_bytes()
            if path.suffix == ".safetensors":
                content = _cast(content, torch.float32, torch.float16)
            member = tarfile.TarInfo(path.relative_to(run).as_posix())
            member.size = len(content)
            bag.addfile(member, io.BytesIO(content))
    content, size = packed.getvalue(), int(part_mib * MIB)
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    to.parent.mkdir(parents=True, exist_ok=True)
    paths = [to.with_name(f"{to.name}.{number:03}") for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return paths


def unpack(bag: Path, to: Path) -> int:
    """Lay what `pack` wrote into the folder `to`, weights in 32 bits again; returns how many models that are.

    Raises:
        SystemExit: A part is missing, or the folder holds one of the files.
    """
    parts = sorted(bag.parent.glob(f"{bag.name}.[0-9][0-9][0-9]"))
    if not parts or [part.suffix for part in parts] != [f".{number:03}" for number in range(len(parts))]:
        raise SystemExit(f"{bag}.000 and its other parts were expected; there are {[part.name for part in parts]}.")
    with tarfile.open(fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts)), mode="r:gz") as opened:
        names = opened.getnames()
        if there := [name for name in names if (to / name).exists()]:
            raise SystemExit(f"{to} holds {there[0]}: name a folder that does not exist.")
        opened.extractall(to, filter="data")
    models = [to / name for name in names if name.endswith(".safetensors")]
    for path in models:
        path.write_bytes(_cast(path.read_bytes(), torch.float16, torch.float32))
    return sum(path.name != "unused.safetensors" for path in models)  # a part that is not used lies beside its model


def _carried(run: Path, patterns: Sequence[str]) -> Iterator[Path]:
    found = {path for pattern in patterns for path in run.glob(pattern) if path.is_file()}
    return iter(sorted(found))


def _cast(content: bytes, old: torch.dtype, new: torch.dtype) -> bytes:
    tensors = {name: value.to(new) if value.dtype == old else value for name, value in load(content).items()}
    return save(tensors, metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pack", "unpack"])
    parser.add_argument("source", type=Path, help="the study's folder, or what its parts are called")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--part-mib", type=float, default=15)
    parser.add_argument("--only", choices=CARRIED, default="all", help="what is packed")
    options = parser.parse_args()
    if options.what == "pack":
        for path in pack(options.source, options.to, options.part_mib, options.only):
            print(f"{path}: {path.stat().st_size / MIB:.1f} MiB")
    else:
        print(f"{options.to}: {unpack(options.source, options.to)} models; the study's command goes on with them.")


if __name__ == "__main__":
    main()
