"""What a case is, and what all kinds of cases share."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
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
    def labels(self) -> Path:
        """Sentences with a label, as `infoflow tune` reads them."""
        return self.path / "labels.tsv"

    @property
    def pairs(self) -> Path:
        return self.path / "pairs.tsv"

    @property
    def facts(self) -> Path:
        return self.path / "facts.tsv"

    @property
    def index(self) -> Path:
        """An index of passages by words."""
        return self.path / "index"

    @property
    def dense(self) -> Path:
        """The same by the vectors of a retriever."""
        return self.path / "dense"

    @property
    def retriever(self) -> Path:
        return self.path / "retriever"

    @property
    def tuned(self) -> Path:
        """What `infoflow tune` wrote."""
        return self.path / "tuned"

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

    def tuning(self) -> list[str]:
        """A short tuning, but for its folder."""
        short = ["--rates=1e-3,1e-2", "--seeds=0,1", "--epochs=1", "--log=plain"]
        return ["tune", str(self.model), f"--train={self.labels}", "--task=length", *short]

    def write(self) -> None:
        """The files that are there before any command."""
        ends = [" and runs" * (number % 5) for number in range(40)]
        self.sentences.write_text("".join(f"the cat sees the dog{end} \n" for end in ends))
        nouns = ("cat", "dog", "bird", "house")
        rows = [f"the {noun} sees the {other} {end}".strip() for noun in nouns for other in nouns for end in ends[:5]]
        self.labels.write_text("".join(f"{'long' if len(row) > 24 else 'short'}\t{row}\n" for row in rows))
        self.pairs.write_text("".join(f"{one}\t{two}\t{len(one)}\n" for one, two in pairwise(rows)))
        self.facts.write_text("".join(f"is\tthe\t{noun}\t[X] or [Y] .\n" for noun in nouns))
        if not self.retriever.exists():
            _write_retriever(self.retriever)

    def commands(self) -> Iterator[list[str]]:
        """What makes it."""
        yield ["study", str(self.plan), f"--out={self.study}", "--processes=1"]
        for index in (0, 1):
            yield ["analyze", str(self.model), f"--shard={index}/2", f"--out={self.shard(index)}", *self.measuring()]
        yield ["merge", str(self.shard(0)), str(self.shard(1)), f"--out={self.merged}"]
        yield ["data", "index", "grammar:60", f"--out={self.index}"]
        yield ["data", "index", "grammar:60", f"--out={self.dense}", f"--retriever={self.retriever}"]
        yield [*self.tuning(), f"--out={self.tuned}"]


def _write_retriever(folder: Path) -> None:
    """A retriever of random weights."""
    from infoflow.corpus import generate_grammar, train_tokenizer
    from infoflow.retrieval import RetrieverConfig, build_retriever

    tokenizer = train_tokenizer([sentence.text for sentence in generate_grammar(200)], 150)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RetrieverConfig(vocab_size=len(tokenizer), max_position_embeddings=64, vector_width=4, **shape)
    build_retriever(config, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


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
    quotes: bool = False  # may tell which error the user's own code raised
    within: Callable[[], object] | None = None  # done in the fork before the command
    answer: Callable[[Path, list[str]], Answer] | None = None  # in another way than by a fork


def written(**files: str | bytes) -> Callable[[Path], None]:
    """A folder with these files; `__` in a name stands for a dot."""

    def prepare(folder: Path) -> None:
        for name, content in files.items():
            path = folder / name.replace("__", ".")
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return prepare
