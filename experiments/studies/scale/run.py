"""Which published claims come true with more tokens and wider models? A study a cell of a grid, then all together.

    python experiments/studies/scale/run.py --out runs/scale --list          # the cells, what they cost, which are done
    python experiments/studies/scale/run.py --out runs/scale --processes 2   # from the cheapest to the dearest
    python experiments/studies/scale/run.py --out runs/scale --only w64-0.3M w64-1M
    python experiments/studies/scale/run.py --out runs/scale --large         # 30 million tokens, widths 256 and 512 too
    python experiments/studies/scale/run.py --out runs/scale --corpora tatoeba grammar --seeds 3 4 5
    python experiments/studies/scale/run.py --out runs/scale --only --reuse runs/laptop   # compare what is there

Each cell is a study in a folder of its own under `--out`, with the plan beside this file but for its scale.
Interrupted, the same command continues; cells that are done are kept. The comparison lies in `--out/compared`; its
small tables and the figure go to `--results`. There it is kept whole, too (`compared`: its tables, no report), and the
next comparison goes on from it: cells whose folders are gone count on, as their rows in `scores.csv` do (each model's
loss and BLEU on the test part, and the CPU seconds of its training). `--tokens`, `--widths` and
`--set training.batch_tokens=256` change the grid, for a try.
"""

import argparse
import dataclasses
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from infoflow import over_scale
from infoflow.cli import with_settings
from infoflow.findings import FINDINGS_AT_SCALE, FINDINGS_OVER_SCALE
from infoflow.foundation import UserError, atomic_write, make_display, set_threads, use_display
from infoflow.report import write_figures
from infoflow.results import RunFolder
from infoflow.studies import Run, StudyPlan, study
from infoflow.subjects.over_scale.claims import TRENDS

sys.path.insert(0, str(Path(__file__).parents[2]))

from collecting import put

HERE = Path(__file__).parent
COMPARED, RUN_JSON = "compared", "run.json"
SCORES = ["cell", "objective", "seed", "metric", "value", "low", "high", "baseline", "cpu_seconds"]
TOKENS, LARGE_TOKENS = (0.3, 1.0, 3.0, 10.0), (30.0,)  # millions of the source
WIDTHS, LARGE_WIDTHS = (64, 128), (256, 512)
CORPORA = {"tatoeba": {}, "grammar": {"name": "grammar:30000", "max_words": 24, "vocabulary": 1000}}
# Of the presets quick, laptop and paper, which chose them on development seeds at these widths; 256 lies between.
LEARNING_RATES = {64: 3e-3, 128: 2e-3, 256: 1e-3, 512: 5e-4}
CPU_SECONDS = (60.0, 30e-6)  # of a model for a million tokens, and for each multiplication of a token: widths 64 to 256


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point of the grid."""

    width: int
    tokens: float  # millions
    corpus: str
    checkpoints: tuple[float, ...] = ()  # of the longest training of its width and corpus: where the others end

    @property
    def name(self) -> str:
        return f"w{self.width}-{self.tokens:g}M{'' if self.corpus == 'tatoeba' else f'-{self.corpus}'}"

    def plan(self, base: StudyPlan) -> StudyPlan:
        """The base plan at this scale; a batch holds as many tokens in all cells."""
        batch = base.training.batch_tokens
        if batch is None:
            raise UserError("The plan must count its batches in tokens: set training.batch_tokens.")
        rate = LEARNING_RATES.get(self.width, base.training.learning_rate)
        updates = max(1, round(1e6 * self.tokens / batch))
        kept = sorted({min(updates, math.ceil(1e6 * each / batch)) for each in self.checkpoints})
        return dataclasses.replace(
            base,
            title=f"{base.title}: {self.name}",
            corpus=dataclasses.replace(base.corpus, **CORPORA[self.corpus]),
            model=dataclasses.replace(base.model, width=self.width, feedforward=4 * self.width),
            training=dataclasses.replace(base.training, updates=updates, learning_rate=rate),
            alignment=dataclasses.replace(base.alignment, learning_rate=rate),
            checkpoints=dataclasses.replace(base.checkpoints, schedule=",".join(map(str, kept))),
        )

    def cpu_seconds(self, plan: StudyPlan, done: "Sequence[tuple[Cell, Run]]") -> float:
        """Of all its trainings, by what the finished cell nearest in width took for each token."""
        models = len(plan.seeds) * len(plan.objectives)
        timed = [(cell, seconds) for cell, run in done if (seconds := _cpu_seconds(run))]
        pace = 1.0  # of this machine, beside the one that was measured
        if timed:
            cell, seconds = min(timed[::-1], key=lambda each: abs(math.log(each[0].width / self.width)))
            pace = sum(seconds) / len(seconds) / (cell.tokens * _seconds(cell.width, plan))
        return models * pace * self.tokens * _seconds(self.width, plan)


def _cpu_seconds(run: Run) -> list[float]:
    """Of the models that the run trained itself."""
    return [float(one["cpu_seconds"]) for one in run.folder.read().get("models", []) if one.get("cpu_seconds")]


def _seconds(width: int, plan: StudyPlan) -> float:
    """CPU seconds of a model for a million tokens: at these widths a part of it hangs on no matrix."""
    fixed, each = CPU_SECONDS
    return fixed + each * _work(width, plan.model.layers, plan.corpus.vocabulary)


def _work(width: int, layers: int, vocabulary: int) -> float:
    """Multiplications for a token, up to a factor: the matrices of the blocks, and the output."""
    return 12 * width**2 * layers + width * vocabulary


def grid(tokens: Sequence[float], widths: Sequence[int], corpora: Sequence[str]) -> list[Cell]:
    """All cells, from the cheapest to the dearest."""
    cells = [
        Cell(
            width=width,
            tokens=each,
            corpus=corpus,
            checkpoints=tuple(tokens) if each == max(tokens) and len(tokens) > 1 else (),
        )
        for corpus in corpora
        for width in widths
        for each in tokens
    ]
    return sorted(cells, key=lambda cell: cell.tokens * _work(cell.width, 6, 4000))


def main() -> None:
    arguments = _arguments()
    set_threads(1)
    base = with_settings(StudyPlan.load(HERE / "plan.toml"), arguments.set)
    if arguments.seeds:
        base = dataclasses.replace(base, seeds=tuple(arguments.seeds))
    tokens = arguments.tokens or [*TOKENS, *(LARGE_TOKENS if arguments.large else ())]
    widths = arguments.widths or [*WIDTHS, *(LARGE_WIDTHS if arguments.large else ())]
    cells = grid(tokens, widths, arguments.corpora)
    if unknown := set(arguments.only or ()) - {cell.name for cell in cells}:
        raise SystemExit(f"--only takes cells of the grid. Got {', '.join(sorted(unknown))}. See --list.")
    wanted = [cell for cell in cells if arguments.only is None or cell.name in arguments.only]
    with use_display(make_display("plain")):
        for cell in wanted:
            plan, folder = cell.plan(base), arguments.out / cell.name
            cost = cell.cpu_seconds(plan, list(_finished(cells, arguments.out))) / 3600
            state = "done" if is_done(folder) else f"about {cost:.2g} CPU hours of training"
            print(f"{cell.name}: {len(plan.seeds)} seeds, {plan.training.updates:,} updates, {state}", flush=True)
            if not arguments.list:
                study(plan, folder, arguments.processes)
        kept = arguments.results / COMPARED
        before = [kept] if (kept / RUN_JSON).exists() else []
        finished = list(_finished(cells, arguments.out))
        runs = [*before, *(run.path for _, run in finished), *arguments.reuse]
        if not arguments.list and (len(runs) > 1 or any(cell.checkpoints for cell, _ in finished)):
            _compare(runs, arguments.out / COMPARED, arguments.results)
            scores = pd.concat(_scores(cell, run) for cell, run in finished)
            put(scores, arguments.results / "scores.csv", ["cell"], ["cell", "objective", "seed", "metric"])


def is_done(folder: Path) -> bool:
    """Whether the cell's study came to its end: its findings are the last thing that it writes."""
    return "findings" in RunFolder(folder).tables


def _finished(cells: Sequence[Cell], out: Path) -> Iterator[tuple[Cell, Run]]:
    for cell in cells:
        if is_done(out / cell.name):
            yield cell, Run.open(out / cell.name)


def _compare(runs: Sequence[Path], out: Path, results: Path) -> None:
    compared = over_scale(runs, out)
    scale = compared.tables[FINDINGS_OVER_SCALE.name]
    tables = {
        FINDINGS_OVER_SCALE.name: scale[scale["followed"]].drop(columns=["effects", "claim", "followed"]),
        TRENDS.name: compared.tables[TRENDS.name],
        "findings": compared.tables[FINDINGS_AT_SCALE.name][
            ["id", "verdict", "effect", "low", "high", "threshold", "unit", "seeds", "run", "trend", "claim"]
        ],
    }
    for name, frame in tables.items():
        with atomic_write(results / f"{name}.csv") as temporary:
            frame.to_csv(temporary, index=False, float_format="%.6g")
    for part in [RUN_JSON, *(f"tables/{name}.parquet" for name in compared.folder.tables)]:
        with atomic_write(results / COMPARED / part) as temporary:
            temporary.write_bytes((compared.path / part).read_bytes())
    paths = write_figures(compared.folder, results / "figures", ("svg", "pdf"))
    print(f"Report: {compared.folder.report}", *paths, sep="\n")


def _scores(cell: Cell, run: Run) -> pd.DataFrame:
    """Loss and BLEU of each trained model on the test part, with what its training cost."""
    scores = run.tables["task_scores"].query("trained and split == 'test' and metric in ('loss', 'bleu')")
    cost = run.tables["training_runs"].set_index("model")["cpu_seconds"].round()
    return scores.assign(cell=cell.name, cpu_seconds=scores["model"].map(cost))[SCORES]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", metavar="CELL", help="none: compare what is done")
    parser.add_argument("--large", action="store_true", help="30 million tokens, widths 256 and 512 too")
    parser.add_argument("--tokens", nargs="+", type=float, metavar="MILLIONS")
    parser.add_argument("--widths", nargs="+", type=int)
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=["tatoeba"])
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--reuse", nargs="+", type=Path, default=[], metavar="RUN", help="studies to compare with")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--results", type=Path, default=HERE)
    parser.add_argument("--list", action="store_true", help="the cells and their cost, nothing else")
    return parser.parse_args()


if __name__ == "__main__":
    main()
