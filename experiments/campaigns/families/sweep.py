"""Every model family of transformers against plain transformers: states, attention, logits; then a few measures.

    python experiments/campaigns/families/sweep.py                 # all families that families.csv lacks
    python experiments/campaigns/families/sweep.py llama bert      # some, printed only

Each family is a tiny random model built from its configuration (tiny.py), loaded by `infoflow.load_model` and measured
on short sentences, padded among others as `infoflow.measure` batches them. Plain transformers runs each sentence alone,
with eager attention and `output_hidden_states`, `output_attentions`.
"""

import copy
import csv
import multiprocessing
import os
import resource
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from queue import Empty
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from tiny import BEGIN, END, PAD, VOCABULARY, families, tiny_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

import infoflow
from infoflow.flow import Measure
from infoflow.foundation import UserError
from infoflow.heads import Confidence, Relevance
from infoflow.lenses import Lens
from infoflow.models import Model, decoder_inputs, forward_logits, model_inputs, pad_rows
from infoflow.representations import InfluenceByFrequency, IntraSentence
from infoflow.results import TableSchema

SECONDS = 120  # of CPU time for one family
TOLERANCE = 1e-4  # of the largest number that is compared
OUT = Path(__file__).parent / "families.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one family."""

    family: str
    outcome: str  # right, states (right, but heads are not read), refused, WRONG, crashed, not built
    task: str = ""
    states: float | None = None  # largest difference from plain transformers, relative to the largest number
    attention: float | None = None
    logits: float | None = None
    padded: bool | None = None  # whether sentences of unequal length share a batch
    failed: str = ""  # measures that failed
    skipped: str = ""  # measures that refused the model, with their reasons
    reason: str = ""  # of a refusal or crash, or why heads are not read


class Capture(Measure):
    """Every state and attention weight, by sentence, as measures get them."""

    table: ClassVar[TableSchema] = TableSchema(name="capture", version=1, description="nothing", columns=())

    def __init__(self, found: dict[int, dict[Any, list[np.ndarray]]], heads: bool) -> None:
        self._found = found
        self.needs = frozenset({"hidden", "attention"} if heads else {"hidden"})

    def __deepcopy__(self, memo: dict) -> "Capture":
        return self  # a pass works on copies, and this one is there to be read

    def update(self, activations: Any) -> None:
        for row, sentence in enumerate(activations.sentence_ids.tolist()):
            lengths = {stack: int(stream.real[row].sum()) for stack, stream in activations.streams.items()}
            found = self._found.setdefault(int(sentence), {})
            for stack, states in activations.hidden.items():
                found[stack] = [state[row, : lengths[stack]].numpy() for state in states]
            for (stack, kind), layers in activations.attention.items():
                keys = lengths["encoder" if kind == "cross" else stack]
                found[stack, kind] = [layer[row, :, : lengths[stack], :keys].numpy() for layer in layers]

    def merge(self, other: Any) -> None: ...

    def state_dict(self) -> dict[str, np.ndarray]:
        return {}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None: ...

    def result(self) -> pd.DataFrame:
        return pd.DataFrame()


def tokenizer() -> PreTrainedTokenizerFast:
    """One word, one token; a special token at either end."""
    words = ["[PAD]", "[BOS]", "[EOS]", "[MASK]", *(f"w{index}" for index in range(VOCABULARY - 4))]
    core = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="[PAD]"))
    core.pre_tokenizer = WhitespaceSplit()
    core.post_processor = TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=[("[BOS]", BEGIN), ("[EOS]", END)])
    special = {"pad_token": "[PAD]", "bos_token": "[BOS]", "eos_token": "[EOS]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, cls_token="[BOS]", sep_token="[EOS]", **special)


def corpus(folder: Path) -> infoflow.Corpus:
    """Forty sentences of 1 to 14 words with translations."""
    rng = np.random.default_rng(0)
    path = folder / "pairs.tsv"
    sides = [
        [" ".join(f"w{word}" for word in rng.integers(0, 36, size)) for size in rng.integers(1, 15, 40)] for _ in "ab"
    ]
    path.write_text("".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)))
    return infoflow.Corpus.from_parallel(path)


def sweep_one(family: str, folder: Path) -> Outcome:
    """Build, load, compare, measure."""
    try:
        module = tiny_model(family)
    except Exception as error:
        return Outcome(family=family, outcome="not built", reason=_said(error))
    plain = copy.deepcopy(module)
    try:
        model = infoflow.load_model(module, tokenizer=tokenizer())
    except UserError as error:
        return Outcome(family=family, outcome="refused", reason=_said(error))
    except Exception as error:
        return Outcome(family=family, outcome="crashed", reason=_said(error))
    texts, found = corpus(folder), {}
    try:
        infoflow.measure(model, texts, [Capture(found, heads=not model.anatomy.unread)])
        differences = _compare(model, plain, texts, found)
    except UserError as error:
        return Outcome(family=family, outcome="refused", task=model.task, reason=_said(error))
    except Exception as error:
        return Outcome(family=family, outcome="crashed", task=model.task, reason=_said(error))
    failed, skipped = _measure(model, texts)
    right = all(value is None or value <= TOLERANCE for value in differences.values())
    return Outcome(
        family=family,
        outcome="WRONG" if not right else "states" if model.anatomy.unread else "right",
        task=model.task,
        padded=model.pads,
        failed=failed,
        skipped=skipped,
        reason=model.anatomy.unread,
        **differences,
    )


def _compare(model: Model, plain: Any, texts: infoflow.Corpus, found: dict) -> dict[str, float | None]:
    """Largest difference of states, attention and logits between sentences in batches and each alone."""
    plain = plain if model.anatomy.unread else _eager(plain)
    two = len(model.anatomy.stacks) > 1
    encode = model.require_tokenizer()
    worst: dict[str, float | None] = {"states": None, "attention": None, "logits": None}

    def note(kind: str, ours: Any, theirs: torch.Tensor) -> None:
        theirs_N = theirs.detach().numpy()
        assert ours.shape == theirs_N.shape, f"{kind}: {ours.shape} for {theirs_N.shape}"
        difference = float(np.abs(ours - theirs_N).max() / max(np.abs(theirs_N).max(), 1e-30))
        worst[kind] = max(worst[kind] or 0.0, difference if np.isfinite(difference) else 1e30)

    chosen = list(zip(texts, texts.content_ids.tolist(), strict=True))[:8]
    logits = _padded_logits(model, [sentence for sentence, _ in chosen])
    for number, (sentence, identity) in enumerate(chosen):
        ids = torch.tensor([encode(sentence.text)["input_ids"]])
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if two:
            target = torch.tensor([encode(sentence.translation)["input_ids"]])
            inputs |= {"decoder_input_ids": decoder_inputs(model, target)[0], "use_cache": False}
        with torch.no_grad(), _last_blocks(model, plain) as last:
            running = plain if plain.get_output_embeddings() is not None else plain.base_model
            output = running(**inputs, output_hidden_states=True, output_attentions=True)
        for stack in model.anatomy.stacks:
            own = getattr(output, f"{stack.name}_hidden_states" if two else "hidden_states", None)
            ours = found[identity][stack.name]
            if own is not None:
                own = [its[0] if its.shape[:-1] == (1, len(ours[0])) else stack.joined(its)[0] for its in own[:-1]]
                without = model.anatomy.unread and len(ours) > 1 and np.allclose(ours[1], own[0].numpy(), atol=1e-5)
                for mine, its in zip(ours[1:] if without else ours[:-1], own, strict=True):
                    note("states", mine, its)  # Mamba and RWKV leave out the embeddings
            returned = stack.joined(last[stack.name])[0]
            note("states", ours[-1], returned[: len(ours[-1])])  # Longformer's own blocks pad the text
            for kind in stack.kinds:
                name = "cross_attentions" if kind == "cross" else f"{stack.name}_attentions" if two else "attentions"
                attends = [kind in layer.attentions for layer in stack.layers]
                own = [one for one in getattr(output, name, None) or () if one is not None]
                own = (
                    [one for one, there in zip(own, attends, strict=True) if there] if len(own) == len(attends) else own
                )
                if len(own) == sum(attends):  # none without eager attention
                    ours = [one for one, there in zip(found[identity][stack.name, kind], attends, strict=True) if there]
                    for mine, its in zip(ours, own, strict=True):
                        theirs = its[0] if its[0].shape == mine.shape else _by_key(its[0], len(mine[0]))
                        rows = mine.sum(-1, keepdims=True)
                        with_sink = bool((rows < 0.999).any()) and np.allclose(theirs.sum(-1), 1, atol=1e-4)
                        note("attention", mine / rows if with_sink else mine, theirs)  # granite_swa returns no sinks
        if logits is not None:
            theirs = output.logits if "logits" in output else output.prediction_logits
            note("logits", logits[number], theirs[0])
    return worst


def _by_key(banded: torch.Tensor, length: int) -> torch.Tensor:
    """Weights by distance (Longformer's, without global tokens) or by block (LongT5's), as weights by key."""
    if banded.dim() == 4:
        padded = torch.zeros(banded.shape[1], length, banded.shape[3] + banded.shape[0] * banded.shape[2])
        for query in range(length):
            number, row = divmod(query, banded.shape[2])
            start = number * banded.shape[2]
            padded[:, query, start : start + banded.shape[3]] = banded[number, :, row]
        return padded[:, :, banded.shape[2] : banded.shape[2] + length]
    banded_HTW = banded
    heads, length, width = banded_HTW.shape
    padded = torch.zeros(heads, length, length + width - 1)
    for query in range(length):
        padded[:, query, query : query + width] = banded_HTW[:, query]
    return padded[:, :, width // 2 : width // 2 + length]


def _eager(plain: Any) -> Any:
    """The model with eager attention; as it is, without attention to compare, where its own eager attention fails."""
    before, ids = plain.config._attn_implementation, torch.tensor([[5, 6, 7]])
    plain.set_attn_implementation("eager")
    for config in {id(one.config): one.config for one in plain.modules() if hasattr(one, "config")}.values():
        config._attn_implementation_internal = "eager"  # families with attention code of their own cannot be told
    try:
        with torch.no_grad():  # also for BigBird, whose first pass puts in its attention for short sentences
            plain.base_model(
                **{"input_ids": ids} | ({"decoder_input_ids": ids} if plain.config.is_encoder_decoder else {})
            )
    except RuntimeError:
        plain.set_attn_implementation(before)
    return plain


class _last_blocks:
    """What the last block of each stack returns, seen by a plain hook."""

    def __init__(self, model: Model, plain: Any) -> None:
        self.found: dict[str, torch.Tensor] = {}
        self.handles = [
            plain.get_submodule(stack.layers[-1].block).register_forward_hook(self._hook(stack.name))
            for stack in model.anatomy.stacks
        ]

    def _hook(self, stack: str) -> Any:
        return lambda block, args, output: self.found.update(
            {stack: output if isinstance(output, torch.Tensor) else output[0]}
        )

    def __enter__(self) -> dict[str, torch.Tensor]:
        return self.found

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()


def _padded_logits(model: Model, sentences: list[Any]) -> list[np.ndarray] | None:
    """Logits of the sentences, padded on the right where the model allows it; None without a language-model head."""
    if model.task == "encoder":
        return None
    encode = model.require_tokenizer()
    rows = [encode(sentence.text)["input_ids"] for sentence in sentences]
    targets = [encode(sentence.translation)["input_ids"] for sentence in sentences]
    found = []
    for part in [list(range(len(rows)))] if model.pads else [[index] for index in range(len(rows))]:
        ids, mask = pad_rows([rows[index] for index in part], PAD)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        lengths = [len(rows[index]) for index in part]
        if len(model.anatomy.stacks) > 1:
            target, _ = pad_rows([targets[index] for index in part], PAD)
            inputs["decoder_input_ids"], _ = decoder_inputs(model, target)
            lengths = [decoder_inputs(model, torch.tensor([targets[index]]))[0].shape[1] for index in part]
        with torch.no_grad():
            logits = forward_logits(model, model_inputs(model, **inputs))
        found += [row[:length].numpy() for row, length in zip(logits, lengths, strict=True)]
    return found


def _measure(model: Model, texts: infoflow.Corpus) -> tuple[str, str]:
    """Measures that failed, and those that refused the model."""
    measures = [
        Confidence(),
        Relevance(sentences=2),
        Lens(steps=1, tokens=200),
        InfluenceByFrequency(per_bin=200, edges=(1, 12, 40)),
        IntraSentence(),
    ]
    skipped = [f"{one.name}: {reason}" for one in measures if (reason := one.why_not(model))]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            infoflow.measure(model, texts, measures)
        except Exception as error:
            return f"all: {_said(error)}", "; ".join(skipped)
    return "; ".join(str(one.message) for one in told if "is left out" in str(one.message)), "; ".join(skipped)


def _said(error: Exception) -> str:
    return f"{'' if isinstance(error, UserError) else type(error).__name__ + ': '}{' '.join(str(error).split())}"[:400]


def _child(family: str, folder: Path, queue: Any) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + SECONDS, resource.RLIM_INFINITY))
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (the process ends)
    queue.put(sweep_one(family, folder))


def sweep(chosen: list[str], folder: Path) -> Iterator[Outcome]:
    """Each family in a process of its own, which may run out of time or memory."""
    fork = multiprocessing.get_context("fork")
    for family in chosen:
        queue = fork.Queue()
        child = fork.Process(target=_child, args=(family, folder, queue))
        child.start()
        outcome = None
        while outcome is None and (child.is_alive() or not queue.empty()):
            with suppress(Empty):
                outcome = queue.get(timeout=1)
        child.kill()
        child.join()
        reason = f"it took over {SECONDS} seconds of CPU time, or too much memory"
        yield outcome or Outcome(family=family, outcome="not built", reason=reason)


def _write(outcomes: list[dict[str, Any]]) -> None:
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Outcome)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(outcomes, key=lambda row: row["family"]))


def main(chosen: list[str]) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = Path(os.environ.get("TMPDIR", "/tmp"))
    done = list(csv.DictReader(OUT.open())) if OUT.exists() and not chosen else []
    missing = [family for family in families() if family not in {row["family"] for row in done}]
    for outcome in sweep(chosen or missing, folder):
        row = {key: f"{value:.1e}" if isinstance(value, float) else value for key, value in asdict(outcome).items()}
        done.append(row)
        print(*[value for value in row.values() if value not in ("", None)], sep=" | ", flush=True)
        if not chosen:
            _write(done)
    counts = pd.Series([row["outcome"] for row in done]).value_counts()
    print(", ".join(f"{name} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
