"""Each file of a tuning damaged, then tuned again or analysed: one message, or the scores as before."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from cases import Case, World
from models import FILES, HOW, VALUES, damaged
from runs import other_numbers

_WEIGHTS = (".safetensors",)


def tuning_cases(world: World) -> Iterator[Case]:
    for file in sorted(path.relative_to(world.tuned) for path in world.tuned.rglob("*") if path.is_file()):
        if file.name.startswith(".") or "seed-1" in file.parts:
            continue
        for how in HOW:
            yield _again(world, f"again {file} {how}", _damage(file, how))
        if file.suffix == ".json":
            for name, content in FILES.items():
                yield _again(world, f"again {file} {name}", _content(file, content))
        if file.name in ("tuning.json", "task.json", "run.json", "results.json"):
            for key in json.loads((world.tuned / file).read_text()):
                for name, value in VALUES.items():
                    yield _again(world, f"again {file} {key} {name}", _entry(file, key, value))
    (model,) = world.tuned.glob("models/*/*/seed-0")
    for file in sorted(path.relative_to(model) for path in model.rglob("*") if path.is_file()):
        for how in HOW:
            yield _analysed(world, model, f"analyze {file} {how}", _damage(file, how))
    for name, change in _ADAPTERS.items():
        yield _analysed(world, model, f"analyze {name}", change)
    for name, words in _OTHER_SETTINGS.items():
        yield _again(world, f"again {name}", lambda _: None, words, codes=(2,))


_OTHER_SETTINGS = {
    "other rates": ["--rates=1e-4"],
    "other epochs": ["--epochs=2"],
    "into a study": ["--out=study"],
}


def _adapter(content: bytes | None, config: object) -> Callable[[Path], None]:
    """A folder that has adapters in place of a model."""

    def change(folder: Path) -> None:
        for name in ("model.safetensors", "config.json"):
            (folder / name).unlink()
        if content is not None:
            (folder / "adapter_model.safetensors").write_bytes(content)
        (folder / "adapter_config.json").write_text(json.dumps(config))

    return change


_PEFT = {"peft_type": "LORA", "base_model_name_or_path": "none/such", "r": 2, "target_modules": ["query"]}
_ADAPTERS = {
    "adapters alone": _adapter(b"", _PEFT),
    "adapters without weights": _adapter(None, _PEFT),
    "adapters of no kind": _adapter(b"", {}),
    "adapters that are a list": _adapter(b"", []),
    "adapters of a path": _adapter(b"", {**_PEFT, "base_model_name_or_path": "../.."}),
    "adapters beside": lambda folder: (folder / "adapter_config.json").write_text(json.dumps(_PEFT)),
    "broken adapters beside": lambda folder: (folder / "adapter_config.json").write_bytes(b"\xff{"),
}


def _damage(file: Path, how: str) -> Callable[[Path], object]:
    return lambda folder: damaged(folder / file, how)


def _content(file: Path, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_bytes(content)


def _entry(file: Path, key: str, value: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**content, key: value}))

    return change


def _again(
    world: World, name: str, change: Callable[[Path], object], words: list[str] | None = None, codes: tuple = (0, 2)
) -> Case:
    def prepare(folder: Path) -> None:
        shutil.copytree(world.tuned, folder / "tuned")
        if words and "--out=study" in words:
            shutil.copytree(world.study, folder / "study")
        change(folder / "tuned")

    def check(folder: Path, _: str, __: str) -> str | None:
        table = Path("tables") / "tuned_scores.parquet"
        return other_numbers(
            folder / "tuned" / table, world.tuned / table, {"model"}
        )  # a path: the world may have moved

    arguments = [*world.tuning(), "--out=tuned"]
    for word in words or ():
        arguments = [given for given in arguments if not given.startswith(f"{word.split('=')[0]}=")] + [word]
    return Case(name, arguments, "", prepare, codes, check, writes=True, limit=60)


def _analysed(world: World, model: Path, name: str, change: Callable[[Path], object]) -> Case:
    def prepare(folder: Path) -> None:
        shutil.copytree(model, folder / "model")
        change(folder / "model")

    return Case(name, ["analyze", "model", *world.measuring(), "--out=out"], "", prepare, (0, 2), writes=True)
