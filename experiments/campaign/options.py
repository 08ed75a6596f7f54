"""Every option and argument of every command with values that make no sense."""

import os
from collections.abc import Iterator
from pathlib import Path

from cases import Case, World

SURFACE = Path(__file__).parents[2] / "tests" / "surface.txt"
LONG = "x" * 5000
_ANY = {"empty": "", "blank": "  ", "long": LONG, "NUL": "a\0b", "escape": "\x1b[31mred", "surrogate": "\udcff"}
_TEXT_FOR_NUMBER = {"word": "many", "nan": "nan", "inf": "inf", "-inf": "-inf", "list": "[1]", "digits": "9" * 5000}
_NOT_WHOLE = {"1.5": "1.5", "10**20": "1" + "0" * 20, "-1": "-1", "arabic": "١٢"}
_WHOLE = {**_ANY, **_TEXT_FOR_NUMBER, **_NOT_WHOLE}
_CHOICE = {**_ANY, "-1": "-1", "0": "0", "nan": "nan", "folder": "sub", "comma": ","}
_INPUT = {
    **{name: value for name, value in _ANY.items() if name != "escape"},
    "missing": "sub/none",
    "device": "/dev/zero",
    "fifo": "fifo",
    "loop": "loop",
    "binary": "binary",
    "folder": "sub",
    "inside a file": "binary/x",
    "long name": "n" * 300,
    "-1": "-1",
    "nan": "nan",
    "..": "..",
}
_OUT = {
    "empty": "",
    "blank": "  ",
    "long": LONG,
    "NUL": "a\0b",
    "long name": "n" * 300,
    "file": "binary",
    "inside a file": "binary/x",
    "device": "/dev/null",
    "proc": "/proc/none/x",
    "loop": "loop/x",
    "fifo": "fifo",
}
_SET = {
    **_ANY,
    "word": "x",
    "equals": "=",
    "no name": "=1",
    "deep": "a.b.c=1",
    "table": "analysis=1",
    "dots": "...=1",
    "inner": "analysis.types.x=1",
    "two": "analysis.types=3\nx=1",
    "NUL in it": "analysis.types=\0",
    "nested": f"analysis.types={'[' * 3000}",
    "unknown": "analysis.typos=3",
    "long value": f"analysis.types={LONG}",
    "long name": f"analysis.{LONG}=1",
}
_VALUES = {
    **dict.fromkeys(("--sentences", "--seed", "--keep"), _WHOLE),
    **{name: {**_WHOLE, "0": "0"} for name in ("--max-length", "--threads", "--top", "--processes")},
    "--width": {**_ANY, **_TEXT_FOR_NUMBER, "0": "0", "-1": "-1", "10**20": "1" + "0" * 20},
    **dict.fromkeys(("--precision", "--log", "--by", "--kinds", "--formats", "--only"), _CHOICE),
    "--device": {**_CHOICE, "none there": "cuda:99", "digits": f"cuda:{'9' * 5000}"},
    "--shard": {
        **_CHOICE,
        "1/1": "1/1",
        "-1/2": "-1/2",
        "a/b": "a/b",
        "0/0": "0/0",
        "three": "0/1/2",
        "digits": f"0/{LONG}",
    },
    **dict.fromkeys(("--corpus", "--plan"), _INPUT),
    "--tokenizer": _INPUT,
    "--parser": {**_ANY, "missing": "sub/none", "folder": "sub", "device": "/dev/zero", "binary": "binary"},
    **dict.fromkeys(("--out", "--figures"), _OUT),
    **{name: {**_ANY, "0": "0", "nan": "nan"} for name in ("--text-column", "--translation-column")},
    "--set": _SET,
}
_ARGUMENTS = {
    "MODEL": {**_INPUT, "absolute": "/none/such", "hub": "nobody/nothing", "dots": "a/../..", "slashes": "a/b/c"},
    "RUN": _INPUT,
    "RUNS": _INPUT,
    "PLAN": {**_INPUT, "capital": "Quick"},
    "NAME": {**_INPUT, "hub": "hf:", "grammar": "grammar:x"},
    "OBJECTIVE": _CHOICE,
    "SENTENCE": {"empty": "", "blank": "  ", "long": "the cat " * 5000, "NUL": "\0", "escape": "\x1b[31m"},
}
_FINE = {  # what a few values in fact mean
    **{("NAME", name): (0,) for name in ()},
    ("SENTENCE", "escape"): (0, 2),
    ("SENTENCE", "NUL"): (0, 2),
    ("--corpus", "-1"): (2,),
}


def folder_of_bad_files(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")


def _commands(world: World) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Arguments of each command in order, by what the surface calls them, and options that keep it short."""
    model, run = str(world.model), str(world.study)
    corpus = {"--corpus": str(world.sentences)}
    return {
        "analyze": ([model], {**corpus, "--only": "head_confidence"}),
        "compare": ([model, str(world.other)], corpus),
        "data describe": (["grammar:50"], {}),
        "data get": (["grammar:50"], {}),
        "dynamics": ([run], {}),
        "findings": ([run], {}),
        "heads": ([model], corpus),
        "merge": ([str(world.shard(0)), str(world.shard(1))], {}),
        "prune": ([model], {**corpus, "--keep": "3"}),
        "report": ([run], {}),
        "study": ([str(world.plan)], {}),
        "train": (["masked-lm"], {"--plan": str(world.plan)}),
        "view": ([model, "the cat"], {}),
    }


def option_cases(world: World) -> Iterator[Case]:
    for line in SURFACE.read_text().split("\n\n")[0].splitlines():
        words = line.split()[1:]
        options = [word for word in words if word.startswith("--")]
        positions = [word for word in words if word.isupper()]
        command = " ".join(word for word in words if word.islower() and not word.startswith("--"))
        if command in _commands(world):
            arguments, short = _commands(world)[command]
            yield from _of_options(command, arguments, short, options)
            yield from _of_arguments(command, arguments, short, positions)


def _of_options(command: str, arguments: list[str], short: dict[str, str], options: list[str]) -> Iterator[Case]:
    for option in options:
        for name, value in _VALUES.get(option, {}).items():
            kept = [f"{key}={given}" for key, given in short.items() if key != option]
            extra = ["--parse"] if option == "--parser" else []
            extra += ["--figures=FOLDER/figures"] if option in ("--formats", "--width") else []
            if option == "--out" and command == "dynamics":
                arguments = [*arguments, *arguments][:2]
            for written in ([f"{option}={value}"], [option, value]) if name == "-1" else ([f"{option}={value}"],):
                words = [*command.split(), *arguments, *kept, *extra, *written]
                yield _case(f"{command} {option} {name}", words, option, name)


def _of_arguments(command: str, arguments: list[str], short: dict[str, str], positions: list[str]) -> Iterator[Case]:
    for index, position in enumerate({"compare": ["MODEL", "MODEL"]}.get(command, positions)[: len(arguments)]):
        for name, value in _ARGUMENTS.get(position, {}).items():
            given = [*arguments[:index], value, *arguments[index + 1 :]]
            words = [*command.split(), *given, *(f"{key}={kept}" for key, kept in short.items())]
            yield _case(f"{command} {position} {name}", words, position, name)


def _case(title: str, words: list[str], option: str, name: str) -> Case:
    return Case(title, words, prepare=folder_of_bad_files, codes=_FINE.get((option, name), (2,)))
