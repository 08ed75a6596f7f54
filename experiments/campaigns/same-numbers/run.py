"""Whether a change left every number, sentence and picture as it was.

python run.py record FOLDER                 # makes all runs anew, then FOLDER/hashes.json
python run.py record FOLDER --runs BEFORE   # opens copies of the finished runs of BEFORE, and draws them again
python run.py compare BEFORE AFTER          # what differs; exit code 1 where something does
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from compared import differences
from recorded import helps, missing_stages, recorded

HERE = Path(__file__).parent
CORPUS = "grammar:500"
MEASURING = {
    "occurrences": 400,
    "types": 20,
    "clusters": 8,
    "distance_occurrences": 200,
    "neighbour_occurrences": 200,
    "neighbours": 10,
    "frequency_occurrences": 60,
    "lens_steps": 2,
    "relevance_sentences": 4,
    "importance_sentences": 10,
    "ablation_sentences": 6,
    "context_sentences": 10,
    "probe_sentences": 40,
    "map_points": 20,
    "bleu_sentences": 4,
}
QUICK = {
    "corpus.name": "grammar:600",
    "corpus.vocabulary": 150,
    "corpus.validation": 0.15,
    "corpus.test": 0.2,
    "model.width": 16,
    "model.layers": 3,
    "model.heads": 4,
    "model.feedforward": 32,
    "training.updates": 16,
    "training.batch_tokens": 256,
    "training.save_every": 8,
    "checkpoints.schedule": "0,4,16",
    "checkpoints.sentences": 40,
    "checkpoints.occurrences": 200,
    "analysis.sentences": 80,
    "probing.sentences": 40,
    "probing.seeds": 2,
    **{f"analysis.{name}": value for name, value in MEASURING.items()},
}
GIVEN = ("causal", "masked", "encoder-decoder")
STUDIES = ("quick", "everything")
OVER_SCALE = "over-scale"  # of the run "everything"
MADE = (*STUDIES, *GIVEN, OVER_SCALE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record_parser = commands.add_parser("record", help="hash all that the runs show")
    record_parser.add_argument("folder", type=Path)
    record_parser.add_argument("--runs", type=Path, help="a folder that `record` filled: its runs are opened, not made")
    record_parser.add_argument("--only", nargs="+", default=[], help="names of runs: quick, everything, causal, ...")
    record_parser.add_argument("--processes", type=int, default=2)
    compare_parser = commands.add_parser("compare", help="list what differs")
    compare_parser.add_argument("before", type=Path)
    compare_parser.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return differences(arguments.before, arguments.after)
    record(arguments.folder, arguments.runs, arguments.only, arguments.processes)
    return 0


def record(folder: Path, finished: Path | None, only: list[str], processes: int) -> None:
    """Make the runs (or copy finished ones), let today's code write their claims and reports, and hash everything."""
    runs, found = folder / "runs", {}
    if not finished and not (runs / "models").exists():
        build_models(runs / "models")
    others = sorted(path.parent.name for path in (finished or folder).glob("runs/*/run.json"))
    for name in only or dict.fromkeys([*MADE, *others]):
        made_of = "everything" if name == OVER_SCALE else name
        if finished and not (runs / made_of).exists():
            shutil.copytree(finished / "runs" / made_of, runs / made_of)
        missing = missing_stages(runs / name) if finished and name in STUDIES else []
        write(name, runs, processes, tables_alone=bool(missing) or (bool(finished) and name in GIVEN))
        found[name] = recorded(runs / name, missing)
        print(f"{name}: {len(found[name]['tables'])} tables, {len(found[name]['figures'])} figures", flush=True)
    hashes = folder / "hashes.json"
    before = json.loads(hashes.read_text(encoding="utf-8"))["runs"] if only and hashes.exists() else {}
    content = {"runs": {**before, **found}, "help": helps()}
    hashes.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write(name: str, runs: Path, processes: int, tables_alone: bool) -> None:
    """Everything of one run that is missing; `tables_alone`: only its claims and its report."""
    out = ["--out", str(runs / name)]
    if tables_alone or name not in MADE:
        infoflow("findings", str(runs / name))
    elif name in STUDIES:
        plan = [str(HERE / "plan.toml")] if name == "everything" else ["quick", *settings(QUICK)]
        infoflow("study", *plan, "--processes", str(processes), *out)
    elif name in GIVEN:
        measuring = settings({f"analysis.{setting}": value for setting, value in MEASURING.items()})
        corpus = ["--corpus", CORPUS, "--sentences", "60"]
        infoflow("analyze", str(runs / "models" / name), *corpus, *measuring, *out)
        infoflow("findings", str(runs / name))
    else:
        infoflow("over-scale", str(runs / "everything"), *out)


def settings(values: dict[str, object]) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def infoflow(*command: str) -> None:
    """Run a command on one thread a process: more would change the last bits of sums."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "infoflow", *command, "--log", "plain"], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"infoflow {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def build_models(folder: Path) -> None:
    """Three tiny models with fixed random weights, as `save_pretrained` writes them."""
    import torch
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        BertConfig,
        BertForMaskedLM,
        GPT2Config,
        GPT2LMHeadModel,
    )

    from infoflow.corpus import load_corpus, train_tokenizer

    tokenizer = train_tokenizer((sentence.text for sentence in load_corpus(CORPUS)), vocab_size=150)
    size, pad = len(tokenizer), tokenizer.pad_token_id
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "hidden_size": 16}
    stacks = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 32))
    }
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": pad}
    makers = {
        "causal": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=size, n_embd=16, n_layer=2, n_head=4, **ends)),
        "masked": lambda: BertForMaskedLM(BertConfig(vocab_size=size, pad_token_id=pad, **shape)),
        "encoder-decoder": lambda: BartForConditionalGeneration(
            BartConfig(vocab_size=size, d_model=16, decoder_start_token_id=2, **stacks, **ends)
        ),
    }
    for name, make in makers.items():
        torch.manual_seed(0)
        model = make()
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


if __name__ == "__main__":
    sys.exit(main())
