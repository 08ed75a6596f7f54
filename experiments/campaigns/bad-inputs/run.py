"""Bad inputs, damaged files and odd surroundings against the command line: each gets one message, and nothing else.

    python experiments/campaigns/bad-inputs/run.py                    # everything; counts go to campaign.csv
    python experiments/campaigns/bad-inputs/run.py --resume           # what a run that was stopped has not tried
    python experiments/campaigns/bad-inputs/run.py --again            # what failed when it was tried last
    python experiments/campaigns/bad-inputs/run.py options models     # some kinds
    python experiments/campaigns/bad-inputs/run.py runs --match flip  # cases whose names hold a word
    python experiments/campaigns/bad-inputs/run.py runs --every 10    # each tenth
    python experiments/campaigns/bad-inputs/run.py runs --part 2/3    # the second third, beside two other processes

Each case runs `infoflow.cli.main` in a fork of this process, which has imported everything and done nothing, in a
folder of its own, and is killed after its time limit. Charts are empty, which saves a second a case. What a case gave
stands in `cases.jsonl` of the folder `--work`, one line each time that it was tried.
"""

import argparse
import csv
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cases import Case, World
from command import answer
from corpora import corpus_cases
from explorer import explorer_cases
from indexes import index_cases
from labels import label_cases
from models import model_cases
from options import option_cases
from own_code import own_code_cases
from plans import plan_cases
from runs import run_cases
from surroundings import surrounding_cases
from tunings import tuning_cases

HERE = Path(__file__).parent
Key = tuple[str, str, int]  # kind, name, number among those of its name
KINDS: dict[str, Callable[[World], Iterator[Case]]] = {
    "options": option_cases,
    "plans": plan_cases,
    "corpora": corpus_cases,
    "models": model_cases,
    "runs": run_cases,
    "surroundings": surrounding_cases,
    "indexes": index_cases,
    "tunings": tuning_cases,
    "labels": label_cases,
    "explorer": explorer_cases,
    "own-code": own_code_cases,
}
_IMPORTS = ("cli", "studies", "report", "corpus", "models", "pruning", "heads", "findings")
_PLAN = """\
title = "Tiny"
objectives = ["causal-lm", "masked-lm"]
[corpus]
name = "grammar:600"
vocabulary = 150
validation = 0.1
test = 0.2
[model]
width = 16
layers = 2
heads = 2
feedforward = 32
positions = 64
[training]
updates = 6
batch_tokens = 256
save_every = 3
[dynamics]
on = true
tokens = 64
held_out_tokens = 0
[analysis]
tables = ["task_scores", "head_confidence", "mutual_information", "model_distance"]
occurrences = 400
types = 30
clusters = 20
clusterings = 1
distance_occurrences = 400
"""
_PYTHON = re.compile(
    r"Traceback|NoneType|\b(?:str|int|float|dict|list|tuple|bool|bytes)' (?:object|and)|"
    r"(?:Key|Type|Value|Index|Attribute|Recursion|Overflow|Unicode\w*|Zero\w*|OS|Assertion|Runtime|Arrow\w*|"
    r"Safetensor\w*|JSONDecode)Error|<class|object at 0x|Errno|dict_keys|PosixPath|\bnumpy\b|ArrowInvalid|"
    r"\bNone\b(?! of)|\bTrue\b|\bFalse\b|Got \(|Got \[?'|got '|embedded null|\bsys\."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []])
    parser.add_argument("--match", default="")
    parser.add_argument("--every", type=int, default=1, help="only each n-th case of a kind")
    parser.add_argument("--part", type=_part, default=(0, 1), help="2/3: the second of three processes on one folder")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "infoflow-campaign")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
    os.environ |= {"INFOFLOW_CACHE": str(chosen.work / "cache"), "OMP_NUM_THREADS": "1"}
    for room in _IMPORTS:
        importlib.import_module(f"infoflow.{room}")
    world = prepared(chosen.work)
    record = Record(chosen.work / "cases.jsonl")
    first, parts = chosen.part
    whole = not chosen.match and chosen.every == parts == 1 and set(chosen.kinds or KINDS) == set(KINDS)
    if whole and not chosen.resume and not chosen.again:
        record.path.unlink(missing_ok=True)
    before = record.read()
    for kind in chosen.kinds or KINDS:
        for key, case in islice(_numbered(kind, KINDS[kind](world)), first, None, chosen.every * parts):
            last = before.get(key, [None])[-1]
            if chosen.match in case.name and (last == "failed" or not chosen.again) and (not last or not chosen.resume):
                wrong, code = tried(case, chosen.work, f"case-{first}")
                record.add(key, "failed" if wrong else "refused" if code == 2 else "accepted")
                if wrong:
                    print(f"{kind}: {case.name}: {wrong}\n    infoflow {_shown(case.arguments)}", flush=True)
        print(kind, dict(_counts(record.read()).get(kind, {})), flush=True)
    counts = _counts(record.read())
    if whole:
        _write(counts)
    sys.exit(any(count["left"] for count in counts.values()))


def _part(text: str) -> tuple[int, int]:
    """`2/3` as (1, 3): which cases come first, and in how many parts all are tried."""
    part, _, parts = text.partition("/")
    return int(part) - 1, int(parts)


@dataclass(frozen=True)
class Record:
    """What each case gave, each time that it was tried: refused, accepted or failed."""

    path: Path

    def read(self) -> dict[Key, list[str]]:
        found: dict[Key, list[str]] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            kind, name, number, gave = json.loads(line)
            found.setdefault((kind, name, number), []).append(gave)
        return found

    def add(self, key: Key, gave: str) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([*key, gave]) + "\n")


def _numbered(kind: str, cases: Iterable[Case]) -> Iterator[tuple[Key, Case]]:
    """Cases with their keys; a name can stand for several."""
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.name] += 1
        yield (kind, case.name, seen[case.name]), case


def _counts(record: dict[Key, list[str]]) -> dict[str, Counter[str]]:
    """By kind: cases tried, failed when they were tried first, and what they gave last (`left`: failed)."""
    counts: dict[str, Counter[str]] = {}
    for (kind, _, _), gave in record.items():
        count = counts.setdefault(kind, Counter())
        count.update(["tried", *(["failed"] if gave[0] == "failed" else [])])
        count.update(["left" if gave[-1] == "failed" else gave[-1]])
    return counts


def prepared(work: Path) -> World:
    """A study with a recording, the shards of an analysis, indexes and a tuning; each made once."""
    world = World(work / "world")
    world.path.mkdir(parents=True, exist_ok=True)
    world.plan.write_text(_PLAN)
    world.write()
    for arguments in world.commands():
        made = Path(f"{next(word for word in arguments if word.startswith('--out=')).removeprefix('--out=')}.made")
        if not made.exists():
            code, _, error = answer(arguments, world.path, 1200)
            assert code == 0, error
            made.touch()
    return world


def tried(case: Case, work: Path, name: str) -> tuple[str, int]:
    """What is wrong with the answer to a case (nothing: an empty text), and its exit code; in a folder of that name."""
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    case.prepare(folder)
    before = _listing(folder)
    arguments = [argument.replace("FOLDER", str(folder)) for argument in case.arguments]
    code, out, error = (
        case.answer(folder, arguments) if case.answer else answer(arguments, folder, case.limit, case.within)
    )
    if code in (-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL):
        return "hangs", code
    if code < 0 and code not in case.codes:
        return f"killed by signal {-code}", code
    wrong = list(_faults(case, code, error))
    if code == 2 and not case.writes and (new := _listing(folder) - before):
        wrong.append(f"leaves {', '.join(sorted(new)[:3])}")
    if not wrong and code == 0 and case.check is not None and (fault := case.check(folder, out, error)):
        wrong.append(fault)
    return "; ".join(wrong), code


def _faults(case: Case, code: int, error: str) -> Iterator[str]:
    if code not in case.codes:
        yield f"exit {code} in place of {' or '.join(map(str, case.codes))}: {_tail(error)}"
    elif (found := _PYTHON.search(error)) and not (case.quotes and "Traceback" not in error):
        yield f"quotes Python ({found[0]}): {_tail(error)}"
    elif code == 2 and case.named not in error:
        yield f"does not name {case.named}: {_tail(error)}"
    if code == 2 and (error or case.within is None) and not re.search(r"[.?)]\s|\.$|See ", error):
        yield f"is no sentence: {_tail(error)}"
    if len(error) > 3000:
        yield f"is {len(error):,} characters long: {error[:200]}"
    if odd := re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", error):
        yield f"holds a control character ({ord(odd[0])}): {_tail(error)!r}"


def _listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _tail(error: str) -> str:
    return error.strip()[-600:].replace("\n", " | ")


def _shown(arguments: Iterable[str]) -> str:
    return " ".join(json.dumps(a if len(a) < 80 else f"{a[:60]}…({len(a):,})", ensure_ascii=True) for a in arguments)


def _write(counts: dict[str, Counter[str]]) -> None:
    columns = ("tried", "failed", "refused", "accepted", "left")
    with (HERE / "campaign.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", *columns])
        writer.writerows([kind, *(counts[kind][name] for name in columns)] for kind in KINDS)


if __name__ == "__main__":
    main()
