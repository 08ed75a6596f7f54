"""Every option and argument of every command with values that make no sense."""

import os
from collections.abc import Iterator
from pathlib import Path

from cases import Case, World

SURFACE = Path(__file__).parents[3] / "tests" / "surface.txt"
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
_NAME = {**_ANY, "folder": "sub", "slashes": "../x", "long name": "n" * 300}
_RATE = {**_CHOICE, "inf": "inf", "1e400": "1e400", "none": ",", "two, one bad": "1e-3,x", "digits": "9" * 5000}
_VALUES = {
    **dict.fromkeys(("--sentences", "--seed", "--keep", "--examples"), _WHOLE),
    **dict.fromkeys(("--facts-per-relation", "--prompts-per-family"), _WHOLE),
    **{name: {**_WHOLE, "0": "0"} for name in ("--max-length", "--threads", "--top", "--processes", "--epochs")},
    **{name: {**_WHOLE, "0": "0"} for name in ("--longest", "--processes", "--baseline-pairs")},
    "--columns": {**_CHOICE, "0": "0,1", "beyond": "1,99", "four": "1,2,3,4"},
    "--port": {**_WHOLE, "70000": "70000"},
    "--host": {name: value for name, value in _ANY.items() if name != "empty"},
    "--seeds": {**_WHOLE, "none": ",", "twice": "0,0", "one bad": "0,x"},
    "--rates": _RATE,
    "--patience": {**_CHOICE, "no unit": "10", "unit": "1x", "-1s": "-1s", "0s": "0s", "digits": f"{'9' * 5000}h"},
    "--gpus": {**_CHOICE, "none there": "99"},
    "--cluster": {
        **_CHOICE,
        "scheme": "ftp://x",
        "port": "tcp://127.0.0.1:99999999",
        "listen": "listen:",
        "file": "binary",
    },
    **dict.fromkeys(("--shape", "--method", "--probe", "--reference", "--heavy", "--heavy-steps"), _CHOICE),
    **dict.fromkeys(("--tables", "--steps", "--checkpoints", "--tags", "--prompts"), _CHOICE),
    "--task": _NAME,
    "--template": {**_ANY, "no blanks": "the cat", "blank alone": "[Y]", "twice": "[X] [X] [Y] [Y]"},
    **{
        name: {**_ANY, "unknown": "nothing", "-1": "-1"}
        for name in ("--label-column", "--second-column", "--bad-column", "--document-column")
    },
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
    **dict.fromkeys(("--corpus", "--plan", "--train", "--dev", "--test", "--labels", "--words", "--start"), _INPUT),
    **dict.fromkeys(("--tokenizer", "--facts", "--templates", "--training-facts", "--lens", "--claims"), _INPUT),
    "--pairs": _INPUT,
    "--retriever": _INPUT,
    "--parser": {**_ANY, "missing": "sub/none", "folder": "sub", "device": "/dev/zero", "binary": "binary"},
    **dict.fromkeys(("--out", "--figures"), _OUT),
    **{name: {**_ANY, "0": "0", "nan": "nan"} for name in ("--text-column", "--translation-column")},
    "--set": _SET,
}
_ARGUMENTS = {
    "MODEL": {**_INPUT, "absolute": "/none/such", "hub": "nobody/nothing", "dots": "a/../..", "slashes": "a/b/c"},
    "RUN": _INPUT,
    "RUNS": _INPUT,
    "SOURCE": {
        **_INPUT,
        "hub": "hf:",
        "facts": "facts:x",
        "no facts": "facts:0",
        "at": "x@",
        "all": "sub@all",
        "schedule": "sub@log:0",
        "twice": "a@b@c",
        "braces": "sub-{a,b",
        "backwards": "sub@20..10",
    },
    "PLAN": {**_INPUT, "capital": "Quick"},
    "NAME": {**_INPUT, "hub": "hf:", "grammar": "grammar:x"},
    "OBJECTIVE": _CHOICE,
    "SENTENCE": {"empty": "", "blank": "  ", "long": "the cat " * 5000, "NUL": "\0", "escape": "\x1b[31m"},
}
_FINE = {  # what a few values in fact mean
    ("SENTENCE", "escape"): (0, 2),
    ("SENTENCE", "NUL"): (0, 2),
    ("--corpus", "-1"): (2,),
    ("--checkpoints", "0"): (0,),  # a list of steps
    ("--heavy-steps", "0"): (0,),
    ("--task", "folder"): (0, 2),
    ("--seed", "list"): (0, 2),  # "study --seed [1]" is a way to write --seed 1
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
        "bert-score": ([model], {"--pairs": str(world.pairs), "--baseline-pairs": "5"}),
        "compare": ([model, str(world.other)], corpus),
        "data describe": (["grammar:50"], {}),
        "data get": (["grammar:50"], {}),
        "data index": (["grammar:50"], {"--out": "FOLDER/index"}),
        "dynamics": ([run], {}),
        "explore": ([model], {"--log": "plain"}),
        "fill-in": ([model], {"--facts": str(world.facts)}),
        "findings": ([run], {}),
        "heads": ([model], corpus),
        "merge": ([str(world.shard(0)), str(world.shard(1))], {}),
        "over-scale": ([run, run], {}),
        "over-training": ([run], {**corpus, "--only": "head_confidence", "--check": ""}),
        "probe": ([model], {**corpus, "--task": "length", "--only": "probe_scores"}),
        "prune": ([model], {**corpus, "--keep": "3"}),
        "report": ([run], {}),
        "study": ([str(world.plan)], {}),
        "train": (["masked-lm"], {"--plan": str(world.plan)}),
        "tune": ([model], {"--train": str(world.labels), "--rates": "1e-3", "--seeds": "0", "--epochs": "1"}),
        "view": ([model, "the cat"], {}),
        "worker": ([run], {"--patience": "1s"}),
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
            another = {"--labels": "--task", "--bad-column": "--task", "--tables": "--only"}.get(option, option)
            kept = [*_short(short, another)]
            extra = ["--parse"] if option == "--parser" else []
            extra += ["--figures=FOLDER/figures"] if option in ("--formats", "--width") else []
            extra += ["--insecure"] if option == "--host" else []
            extra += ["--task=sentence-label"] if option == "--labels" else []
            extra += ["--task=minimal-pairs"] if option == "--bad-column" else []
            if option == "--out" and command == "dynamics":
                arguments = [*arguments, *arguments][:2]
            for written in ([f"{option}={value}"], [option, value]) if name == "-1" else ([f"{option}={value}"],):
                words = [*command.split(), *arguments, *kept, *extra, *written]
                yield _case(f"{command} {option} {name}", words, option, name)


def _of_arguments(command: str, arguments: list[str], short: dict[str, str], positions: list[str]) -> Iterator[Case]:
    named = {"compare": ["MODEL", "MODEL"], "over-scale": ["RUNS", "RUNS"]}
    named |= {command: ["MODEL"] for command in ("bert-score", "explore", "fill-in")}
    for index, position in enumerate(named.get(command, positions)[: len(arguments)]):
        for name, value in _ARGUMENTS.get(position, {}).items():
            given = [*arguments[:index], value, *arguments[index + 1 :]]
            words = [*command.split(), *given, *_short(short)]
            yield _case(f"{command} {position} {name}", words, position, name)


def _short(options: dict[str, str], but: str = "") -> Iterator[str]:
    for name, value in options.items():
        if name != but:
            yield f"{name}={value}" if value else name


def _case(title: str, words: list[str], option: str, name: str) -> Case:
    limit = 6 if words[0] == "explore" else 20  # a page that is served waits for ever
    return Case(title, words, prepare=folder_of_bad_files, codes=_FINE.get((option, name), (2,)), limit=limit)
