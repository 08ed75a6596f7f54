"""A model's folder with each file damaged, and each entry of its configuration changed."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from cases import Case, World

VALUES: dict[str, Any] = {
    "0": 0,
    "-1": -1,
    "1.5": 1.5,
    "null": None,
    "text": "none",
    "huge": 10**9,
    "10**30": 10**30,
    "list": [],
    "table": {},
    "true": True,
    "NaN": float("nan"),
    "long": "x" * 5000,
    "control": "\x1b[31m",
}
FILES: dict[str, bytes] = {
    "list": b"[]",
    "number": b"3",
    "null": b"null",
    "text": b'"x"',
    "empty object": b"{}",
    "not UTF-8": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "digits": b'{"hidden_size": ' + b"9" * 5000 + b"}",
    "twice cut": b'{"a": ',
}
_TABLE = "out/tables/head_confidence.parquet"


def damaged(path: Path, how: str) -> None:
    """Damage a file in place, links to it excepted."""
    content = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "removed":
        path.write_bytes(DAMAGE[how](content))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "zeroed": lambda content: bytes(len(content)),
    "flip first": lambda content: _flipped(content, 0),
    "flip middle": lambda content: _flipped(content, len(content) // 2),
    "flip last": lambda content: _flipped(content, len(content) - 2),
    "longer": lambda content: content + b"\0" * 100,
}
HOW = (*DAMAGE, "removed", "folder")


def _flipped(content: bytes, position: int) -> bytes:
    changed = bytearray(content)
    changed[max(0, position)] ^= 16
    return bytes(changed)


def model_cases(world: World) -> Iterator[Case]:
    files = sorted(path.relative_to(world.model) for path in world.model.rglob("*") if path.is_file())
    for file in files:
        for how in HOW:
            yield _case(world, f"{file} {how}", lambda folder, file=file, how=how: damaged(folder / file, how))
        if file.suffix == ".json":
            for name, content in FILES.items():
                yield _case(world, f"{file} {name}", lambda f, file=file, text=content: (f / file).write_bytes(text))
    for file in ("config.json", "tokenizer_config.json", "generation_config.json"):
        source = world.model if (world.model / file).exists() else world.other
        for key in json.loads((source / file).read_text()):
            for name, value in VALUES.items():
                yield _case(world, f"{file} {key} {name}", _entry(file, key, value), source)
    for key in (
        "model_type",
        "architectures",
        "auto_map",
        "quantization_config",
        "dtype",
        "torch_dtype",
        "rope_scaling",
    ):
        for value in ("none", ["nothing"], {"AutoModel": "x.Y"}, [3], "../x", {"quant_method": "none"}):
            yield _case(world, f"config.json {key} {json.dumps(value)}", _entry("config.json", key, value))
    yield _case(world, "no files", lambda folder: [path.unlink() for path in folder.glob("*.*")])
    yield _case(world, "only config", lambda folder: (folder / "model.safetensors").unlink())


def _entry(file: str, key: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**content, key: value}))

    return change


def _case(world: World, name: str, change: Callable[[Path], object], source: Path | None = None) -> Case:
    def prepare(folder: Path) -> None:
        shutil.copytree(source or world.model, folder / "model")
        change(folder / "model")

    # What a model computes is its own; that every number is one, and lies where it can, is infoflow's.
    arguments = ["analyze", "model", *world.measuring(), "--out=out"]
    return Case(name, arguments, "", prepare, (0, 2), _sound, writes=True)


def _sound(folder: Path, _: str, __: str) -> str | None:
    values = pd.read_parquet(folder / _TABLE)["value"]
    return None if len(values) and values.between(0, 1).all() else f"values {values.min()} to {values.max()}"
