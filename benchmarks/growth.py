"""How time and memory grow with sentences, their length, width, layers, heads, models and checkpoints.

    python benchmarks/growth.py                 # about 25 minutes on one core
    python benchmarks/growth.py --only layers

One factor at a time is doubled from a masked LM of 4 layers, width 64 and 4 heads (random weights) on 500 sentences of
a grammar. Each size runs in a process of its own. *Pass*: hidden states and six head statistics, streamed. *Analysis*:
`infoflow.analyze` with all default tables and the report, without the untrained control; `compare` for models and
`over_training` for checkpoints. Seconds are of the process; memory is the growth of its peak. An exponent is the
base-2 logarithm of the ratio of the last two sizes: 1 is linear.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _memory import peak_megabytes

BASE = {"sentences": 500, "length": 1, "width": 64, "layers": 4, "heads": 4, "models": 1, "checkpoints": 1}
SIZES = {
    "sentences": (500, 1000, 2000, 4000),
    "length": (1, 2, 4, 8),
    "width": (64, 128, 256, 512),
    "layers": (2, 4, 8, 16),
    "heads": (2, 4, 8, 16),
    "models": (2, 4, 8),
    "checkpoints": (2, 4, 8),
}
TASKS = dict.fromkeys(SIZES, ("pass", "analysis")) | {"models": ("analysis",), "checkpoints": ("analysis",)}


def texts(sentences: int, length: int) -> list[str]:
    """`length` sentences of the grammar behind one another in each text."""
    from infoflow.corpus import load_corpus

    lines = [sentence.text for sentence in load_corpus(f"grammar:{sentences * length}")]
    return [" ".join(lines[start : start + length]) for start in range(0, len(lines), length)]


def save_models(folder: Path, lines: list[str], size: dict[str, int]) -> list[Path]:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    from infoflow.corpus import train_tokenizer

    tokenizer, paths = train_tokenizer(lines, vocab_size=400, max_length=512), []
    for number in range(size["models"] * size["checkpoints"]):
        torch.manual_seed(number if size["models"] > 1 else 0)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=size["width"],
            num_hidden_layers=size["layers"],
            num_attention_heads=size["heads"],
            intermediate_size=4 * size["width"],
        )
        paths.append(folder / (f"checkpoint-{number}" if size["checkpoints"] > 1 else f"model-{number}"))
        model = BertForMaskedLM(config)
        with torch.no_grad():  # checkpoints of one training differ a little
            for weights in model.parameters() if size["checkpoints"] > 1 else ():
                weights.mul_(1 + 0.01 * number)
        model.save_pretrained(paths[-1])
        tokenizer.save_pretrained(paths[-1])
    return paths


def run(task: str, size: dict[str, int], folder: Path) -> None:
    """Run one size, and print its CPU seconds and how many megabytes the peak grew."""
    import infoflow
    from infoflow.flow import PassOptions, measure
    from infoflow.foundation import SilentDisplay, set_threads, use_display
    from infoflow.heads import (
        AttentionByDistance,
        Confidence,
        Entropy,
        PositionalScores,
        RareTokenScores,
        SurfaceStatistics,
    )
    from infoflow.models import load_model
    from infoflow.subjects.over_training.stages import over_training

    set_threads(1)
    lines = texts(size["sentences"], size["length"])
    paths, corpus = save_models(folder, lines, size), folder / "corpus.txt"
    corpus.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shared = {"corpus": str(corpus), "sentences": size["sentences"], "control": False}
    statistics = [Confidence(), Entropy(), PositionalScores(), RareTokenScores(), SurfaceStatistics()]
    with use_display(SilentDisplay()):
        model, read = load_model(paths[0]), infoflow.Corpus.from_sentences(lines, "texts")
        before, started = peak_megabytes(), sum(os.times()[:4])
        if task == "pass":
            measure(model, read, [*statistics, AttentionByDistance()], options=PassOptions())
        elif size["models"] > 1:
            infoflow.analyze([str(path) for path in paths], out=folder / "run", **shared)
        elif size["checkpoints"] > 1:
            options = infoflow.studies.AnalyzeOptions(corpus=str(corpus), sentences=size["sentences"])
            over_training([folder], options, folder / "run", num_processes=1)
        else:
            infoflow.analyze(str(paths[0]), out=folder / "run", **shared)
    print(sum(os.times()[:4]) - started, peak_megabytes() - before)


def measured(task: str, size: dict[str, int]) -> tuple[float, float]:
    """Seconds and megabytes of a size, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        named = [f"{name}={value}" for name, value in size.items()]
        command = [sys.executable, "-W", "ignore", __file__, "--child", task, folder, *named]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = done.stdout.strip().splitlines()[-1].split()
    return float(seconds), float(megabytes)


def exponent(values: list[float]) -> float:
    return math.log2(values[-1] / values[-2]) if min(values[-2:]) > 0 else math.nan


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        task, folder, *named = sys.argv[2:]
        run(task, {name: int(value) for name, value in (each.split("=") for each in named)}, Path(folder))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(SIZES), action="append")
    known: dict[tuple, tuple[float, float]] = {}
    print("| factor | sizes | task | CPU seconds | exponent | megabytes | exponent |\n|---|---|---|---|---|---|---|")
    for factor in parser.parse_args().only or SIZES:
        for task in TASKS[factor]:
            rows = []
            for value in SIZES[factor]:
                key = task, *(BASE | {factor: value}).items()
                known[key] = known.get(key) or measured(task, BASE | {factor: value})
                rows.append(known[key])
            seconds, megabytes = ([row[at] for row in rows] for at in (0, 1))
            cells = [factor, ", ".join(map(str, SIZES[factor])), task, ", ".join(f"{one:.1f}" for one in seconds)]
            cells += [f"{exponent(seconds):.2f}", ", ".join(f"{one:.0f}" for one in megabytes)]
            print(f"| {' | '.join([*cells, f'{exponent(megabytes):.2f}'])} |", flush=True)


if __name__ == "__main__":
    main()
