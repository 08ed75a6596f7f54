"""Tuning speed as ratios within one run, against what a user would write instead.

    python benchmarks/tuning.py [--pairs 9] [--updates 8] [--tasks 4]

A BERT of random weights, 128 wide with 4 layers, reads random words with the lengths of everyday sentences; one thread.
Each ratio is the median over pairs of runs that take turns, in processor seconds, so that other work on the machine
disturbs little.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from infoflow.adaptation import TaskData, TuneConfig, make_task, task_model, tune
from infoflow.corpus import Corpus, train_tokenizer
from infoflow.foundation import SilentDisplay, set_threads, use_display
from infoflow.models import Model, load_model
from infoflow.training import TrainConfig, TrainingData, Updater, make_accelerator
from infoflow.training._config import make_optimizer

from infoflow.subjects.adaptation.measures._task_parts import task_vocabulary  # isort: skip

BATCH, EXAMPLES = 32, 256
WORDS = [f"word{number}" for number in range(1000)]
Step = Callable[[], None]


def data(name: str) -> TaskData:
    """Two classes; texts of 4 to 40 words, 15 on average."""
    generator = np.random.default_rng(0)
    sizes = np.clip(generator.gamma(6, 2.5, 2 * EXAMPLES).astype(int), 4, 40)
    texts = [" ".join(generator.choice(WORDS, size)) for size in sizes]
    frame = pd.DataFrame({"text": texts, "label": ["even" if size % 2 else "odd" for size in sizes]})
    cuts = {"train": slice(0, EXAMPLES), "dev": slice(EXAMPLES, EXAMPLES + 128), "test": slice(EXAMPLES + 128, None)}
    parts = {part: Corpus.from_frame(frame[rows], label="label", name=part) for part, rows in cuts.items()}
    return TaskData(name=name, shape="classification", labels=("even", "odd"), **parts)


def model(tokenizer: PreTrainedTokenizerFast) -> Model:
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 512}
    return load_model(BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes, pad_token_id=0)), tokenizer)


def ours(base: Model, task_data: TaskData) -> Step:
    """The update of tuning: rows made into a batch, loss, gradients clipped, AdamW."""
    task = make_task(task_data)
    module = task_model(base, task).train()
    rows = task.rows(task_data.train, base.require_tokenizer(), 128)
    training = TrainingData(source=rows, vocabulary=task_vocabulary(base.require_tokenizer()))
    config = TrainConfig(learning_rate=1e-4, micro_tokens=8192, decay_norms=False, batch_sentences=BATCH)
    updater, optimizer = (
        Updater(task, module, training, config, make_accelerator("cpu")),
        make_optimizer(module, config),
    )
    batches = _batches(np.asarray(rows.lengths))
    updates = iter(range(1, 10**9))

    def step() -> None:
        update = next(updates)
        chosen = batches[update % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        updater.accumulate(updater.batches(chosen, 0), chosen, update, stop=False)
        optimizer.step()

    return step


def bare(base: Model, task_data: TaskData) -> Step:
    """A bare PyTorch loop of the same model, batches and optimiser, over ready-made tensors."""
    task = make_task(task_data)
    module = task_model(base, task).train()
    decayed = [parameter for parameter in module.parameters() if parameter.ndim >= 2]
    plain = [parameter for parameter in module.parameters() if parameter.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.98), eps=1e-6, fused=True)
    texts, labels = list(task_data.train.column("text")), list(task_data.train.column("label"))
    rows = task.rows(task_data.train, base.require_tokenizer(), 128)
    ready = []
    for chosen in _batches(np.asarray(rows.lengths)):
        inputs = base.require_tokenizer()([texts[row] for row in chosen], padding=True, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        ready.append((dict(inputs), torch.tensor([task_data.labels.index(labels[row]) for row in chosen])))
    updates = iter(range(1, 10**9))

    def step() -> None:
        inputs, wanted = ready[next(updates) % len(ready)]
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(module(**inputs).logits, wanted).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    return step


def _batches(lengths: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(lengths, kind="stable")
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def median_ratio(slow: Callable[[], object], fast: Callable[[], object], pairs: int) -> tuple[float, float, float]:
    """Of the times of `slow` to those of `fast`: median over pairs, smallest, largest."""
    ratios = sorted(seconds(slow) / seconds(fast) for _ in range(pairs))
    return statistics.median(ratios), ratios[0], ratios[-1]


def frozen(base: Model, tasks: list[TaskData], shared: bool) -> None:
    """Heads of several tasks that read the same texts, their features kept together or each task for itself."""
    folder = Path(tempfile.mkdtemp())
    settings = TuneConfig(method="frozen", learning_rates=(1e-2,), seeds=(0,), head_epochs=4, precision="fp32")
    try:
        for one in tasks:
            tune(base, one, settings, folder, features=folder / "features" / ("all" if shared else one.name))
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, help="pairs of runs")
    parser.add_argument("--updates", type=int, default=8, help="of each run")
    parser.add_argument("--tasks", type=int, default=4, help="that read the same texts")
    arguments = parser.parse_args()
    set_threads(1)
    base = model(train_tokenizer([" ".join(WORDS)] * 3, vocab_size=1100))
    first = data("first")
    steps = [one(base, first) for one in (bare, ours)]
    runs = [lambda step=step: [step() for _ in range(arguments.updates)] for step in steps]
    for run in runs:
        run()
    ratio, low, high = median_ratio(*runs, arguments.pairs)
    print(f"speed of our update / bare PyTorch loop          {ratio:5.3f}x   [{low:.3f}, {high:.3f}]", flush=True)
    tasks = [data(f"task-{number}") for number in range(arguments.tasks)]
    with use_display(SilentDisplay()):
        ratio, low, high = median_ratio(
            lambda: frozen(base, tasks, shared=False), lambda: frozen(base, tasks, shared=True), 3
        )
    label = f"{arguments.tasks} frozen tasks, features shared / not shared"
    print(f"{label:<48} {ratio:5.2f}x   [{low:.2f}, {high:.2f}]", flush=True)


if __name__ == "__main__":
    main()
