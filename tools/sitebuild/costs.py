"""Measures what each measure costs beside a bare pass, and writes docs/methods/costs.json.

PYTHONPATH=tools:src OMP_NUM_THREADS=1 .venv/bin/python -m sitebuild.costs          all of them
PYTHONPATH=tools:src OMP_NUM_THREADS=1 .venv/bin/python -m sitebuild.costs --new    those that have no number yet
"""

import importlib
import inspect
import json
import math
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from .__main__ import ROOT
from .methods import front

_NOTHING = "the generated sentences hold nothing that it asks about"
SENTENCES, WIDTH, LAYERS, HEADS, PIECES = 200, 128, 4, 4, 200


def reference() -> tuple[Any, Any]:
    """A masked LM of random weights, and the sentences of the built-in grammar."""
    import infoflow
    from infoflow.corpus import train_tokenizer

    corpus = infoflow.load_corpus(f"grammar:{SENTENCES}")
    tokenizer = train_tokenizer([sentence.text for sentence in corpus], PIECES)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=128, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return infoflow.load_model(BertForMaskedLM(config), tokenizer, "cpu"), corpus


def seconds(model: Any, corpus: Any, measure: Any) -> float:
    """CPU seconds of one call; NaN: it has nothing to measure here."""
    import infoflow

    before = time.process_time()
    found = infoflow.measure(model, corpus, [measure])
    return time.process_time() - before if len(found[measure.name]) else float("nan")


def bare(model: Any, corpus: Any) -> float:
    """CPU seconds of the model's passes over the corpus, with nothing measured."""
    texts = [sentence.text for sentence in corpus]
    before = time.process_time()
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            batch = model.tokenizer(texts[start : start + 32], return_tensors="pt", padding=True)
            model.module(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    return time.process_time() - before


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model, corpus = reference()
    bare(model, corpus)
    costs = ROOT / "docs" / "methods" / "costs.json"
    before = json.loads(costs.read_text(encoding="utf-8")) if "--new" in sys.argv else {}
    found: dict[str, Any] = {
        "model": f"a masked LM of {LAYERS} layers, {HEADS} heads and width {WIDTH}",
        "corpus": f"{SENTENCES} generated sentences",
        "bare": round(bare(model, corpus), 2),
        "version": version("infoflow"),
        "measures": {},
        "missing": {},
        **before,
    }
    for path in sorted((ROOT / "docs" / "methods").glob("*.md")):
        if path.name == "index.md":
            continue
        for name in front(path.read_text(encoding="utf-8")).get("measures", []):
            room, cls = name.split(".")
            _add(found, cls, getattr(importlib.import_module(f"infoflow.{room}"), cls), model, corpus)
            text = json.dumps(found, indent=1, ensure_ascii=False)  # after each: the last ones take longest
            costs.write_text(text + "\n", encoding="utf-8")


def _add(found: dict[str, Any], name: str, kind: type, model: Any, corpus: Any) -> None:
    """Time one measure; where it takes two models, or refuses this one, say why."""
    from infoflow.flow import PairMeasure
    from infoflow.foundation import UserError

    if name in found["measures"] or name in found["missing"]:
        return
    if issubclass(kind, PairMeasure):
        found["missing"][name] = "it compares two models"
        return
    needed = [one for one, of in inspect.signature(kind).parameters.items() if of.default is inspect.Parameter.empty]
    if needed:
        what = "other checkpoints of the same training" if "references" in needed else f"{needed[0]} of the user's own"
        found["missing"][name] = f"it needs {what}"
        return
    measure = kind()
    if reason := measure.why_not(model):
        found["missing"][name] = reason.rstrip(".")
        return
    try:
        taken = round(seconds(model, corpus, measure), 2)
        if math.isnan(taken):
            found["missing"][name] = _NOTHING
        else:
            found["measures"][name] = taken
    except UserError as error:
        found["missing"][name] = str(error).splitlines()[0].rstrip(".")
    print(name, found["measures"].get(name, found["missing"].get(name)), file=sys.stderr)


if __name__ == "__main__":
    main()
