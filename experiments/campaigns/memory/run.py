"""Processor time and peak of memory by table: of large corpora, deep models, large vocabularies.

    OMP_NUM_THREADS=1 python experiments/campaigns/memory/run.py corpus          # 30,000 and 100,000 sentences
    OMP_NUM_THREADS=1 python experiments/campaigns/memory/run.py layers          # 24 and 96 layers
    OMP_NUM_THREADS=1 python experiments/campaigns/memory/run.py vocabulary      # 2,000 and 100,000 tokens
    OMP_NUM_THREADS=1 python experiments/campaigns/memory/run.py layers lens     # some tables

Each case is a fork of this process, which has imported everything, with a model of width 8 and words as tokens. What
it holds at most above what it held when it began, and its processor time, are written to `memory.csv`, which keeps one
row a case: the last. A table's name with "start" after it is what every table of it needs: corpus, tokenizer, sample.
"""

import argparse
import csv
import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

import infoflow.studies as studies
from infoflow.corpus import Corpus, load_corpus
from infoflow.flow import PassOptions, collect
from infoflow.foundation import UserError
from infoflow.models import load_model

FILE = Path(__file__).with_name("memory.csv")
COLUMNS = ("part", "size", "table", "seconds", "megabytes", "note")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LIMIT = 300  # seconds of the processor for a table


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is measured: a corpus of random words, Zipf-distributed, and a model."""

    size: int  # what the part varies
    sentences: int
    words: int = 2_000
    layers: int = 2
    heads: int = 2
    width: int = 8


PARTS: dict[str, list[Setting]] = {
    "corpus": [Setting(size=n, sentences=n) for n in (30_000, 100_000)],
    "layers": [Setting(size=n, sentences=500, layers=n, heads=2) for n in (24, 96)],
    "vocabulary": [Setting(size=n, sentences=20_000, words=n) for n in (2_000, 100_000)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--sizes", type=int, nargs="*", default=())
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "infoflow-memory")
    chosen = parser.parse_args()
    os.environ["INFOFLOW_CACHE"] = str(chosen.work / "cache")
    for setting in PARTS[chosen.part]:
        if not chosen.sizes or setting.size in chosen.sizes:
            folder = prepared(setting, chosen.work / f"{chosen.part}-{setting.size}")
            for table in chosen.tables or tables():
                row = measured(table, folder)
                print(chosen.part, setting.size, table, *row, flush=True)
                keep(chosen.part, str(setting.size), table, *row)


def tables() -> list[str]:
    measures = studies.standard_measures(studies.AnalysisPlan())
    return ["start", *dict.fromkeys(measure.name for measure in measures)]


def prepared(setting: Setting, folder: Path) -> Path:
    """A text and a model, made once."""
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, setting.words + 1)
    lengths = rng.integers(5, 16, setting.sentences)
    drawn = rng.choice(setting.words, lengths.sum(), p=share / share.sum())
    lines = (" ".join(f"w{word}" for word in part) for part in np.split(drawn, lengths.cumsum()[:-1]))
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *(f"w{n}" for n in range(setting.words))])}
    _model(setting, vocabulary).save_pretrained(folder / "model")
    _tokenizer(vocabulary).save_pretrained(folder / "model")
    (folder / "done").touch()
    return folder


def _model(setting: Setting, vocabulary: dict[str, int]) -> BertForMaskedLM:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=setting.width,
        num_hidden_layers=setting.layers,
        num_attention_heads=setting.heads,
        intermediate_size=2 * setting.width,
        max_position_embeddings=64,
    )
    return BertForMaskedLM(config)


def _tokenizer(vocabulary: dict[str, int]) -> PreTrainedTokenizerFast:
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)


def measured(table: str, folder: Path) -> tuple[str, str, str]:
    """Seconds of the processor, megabytes above the start, and what was said, of one table in a fork."""
    read, write = os.pipe()
    if not (process := os.fork()):
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (_LIMIT, _LIMIT))
        start, begun = _now(), time.process_time()
        note = _done(table, folder)
        found = [f"{time.process_time() - begun:.1f}", f"{(_peak() - start) / 2**20:.0f}", note]
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(process, 0)
    return tuple(json.loads(text)) if text else ("", "", f"not done after {_LIMIT} seconds")


def _done(table: str, folder: Path) -> str:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    corpus: Corpus = load_corpus(str(folder / "corpus.txt"))
    model = load_model(folder / "model")
    try:
        if table == "start":
            corpus.encode(model.require_tokenizer(), side="text", max_length=64)
            return ""
        chosen = studies.standard_measures(studies.AnalysisPlan(tables=(table,)))
        with tempfile.TemporaryDirectory() as samples:
            made = collect(model, corpus, chosen, Path(samples), PassOptions())
            return f"{sum(map(len, made.tables.values())):,} rows"
    except UserError as error:
        return str(error).splitlines()[0][:100]


def _now() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def keep(*row: str) -> None:
    """Replace the case's row, or add it."""
    rows = list(csv.reader(FILE.open())) if FILE.exists() else [list(COLUMNS)]
    rows = [each for each in rows if each[:3] != list(row[:3])] + [list(row)]
    with FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
