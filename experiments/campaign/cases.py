"""What a case is, and what all kinds of cases share."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported, which the kinds of cases do
Answer = tuple[int, str, str]


@dataclass(frozen=True)
class World:
    """What cases copy from: a finished study and an analysis in two shards."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.toml"

    @property
    def sentences(self) -> Path:
        return self.path / "sentences.txt"

    @property
    def study(self) -> Path:
        return self.path / "study"

    @property
    def model(self) -> Path:
        return self.study / "models" / "masked-lm" / "seed-0"

    @property
    def other(self) -> Path:
        return self.study / "models" / "causal-lm" / "seed-0"

    def shard(self, index: int) -> Path:
        return self.path / f"shard-{index}"

    @property
    def merged(self) -> Path:
        return self.path / "merged"

    def measuring(self) -> list[str]:
        """Options of a short analysis."""
        return [f"--corpus={self.sentences}", "--only=head_confidence", "--no-control", "--log=plain"]

    def commands(self) -> Iterator[list[str]]:
        """What makes it."""
        yield ["study", str(self.plan), f"--out={self.study}", "--processes=1"]
        for index in (0, 1):
            yield ["analyze", str(self.model), f"--shard={index}/2", f"--out={self.shard(index)}", *self.measuring()]
        yield ["merge", str(self.shard(0)), str(self.shard(1)), f"--out={self.merged}"]


def nothing(folder: Path) -> None:
    """An empty folder."""


@dataclass(frozen=True)
class Case:
    """A command and what it must answer; `FOLDER` in its arguments is the folder that it runs in."""

    name: str
    arguments: list[str]
    named: str = ""  # what a refusal must name
    prepare: Callable[[Path], object] = nothing
    codes: tuple[int, ...] = (2,)
    check: Callable[[Path, str, str], str | None] | None = None  # of folder, output and error, where it was accepted
    writes: bool = False  # may leave files behind when it is refused
    limit: int = 20  # seconds
    within: Callable[[], object] | None = None  # done in the fork before the command
    answer: Callable[[Path, list[str]], Answer] | None = None  # in another way than by a fork


def written(**files: str | bytes) -> Callable[[Path], None]:
    """A folder with these files; `__` in a name stands for a dot."""

    def prepare(folder: Path) -> None:
        for name, content in files.items():
            path = folder / name.replace("__", ".")
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return prepare
