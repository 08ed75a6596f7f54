"""Pages of methods: the written part (question, traps) around what follows from docstrings, schemas and tests."""

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infoflow.results import TABLES

from . import checks
from .escaping import cell, escaped
from .findings import anchor
from .schemas import columns

# Parts of a docstring that the API page has.
_PARTS = re.compile(r"^(Args|Raises|Returns|Attributes|Example|Examples):\n(?:(?: .*)?\n)*", flags=re.MULTILINE)
_KINDS = {"10": "Layers", "20": "Heads", "30": "Over training", "40": "Probes"}
"""Parts of the list of methods, by the `order` of their pages."""
MINILM = "all-MiniLM-L6-v2"
SMOLLM2 = "SmolLM2-135M-Instruct.gguf"
_FEW = "--set analysis.occurrences=4000 --set analysis.clusters=100"
_TWIN = "beside the same architecture with random weights; bands: 95% intervals over sentences"
_SMALL = "lens,head_importance,head_relevance,head_pruning_curve,head_ablation,ngram_agreement,effective_rank"
_QUICK = "of the preset quick (6 layers of width 64, 3,000 updates)"
_TATOEBA = "sentences of Tatoeba; bands: 95% intervals over sentences"
_NAMED = "attention_sink,massive_activation,head_weights,head_composition"
FIGURES = {
    "study": ("study quick --set training.updates=3000", ""),
    "minilm": (f"analyze {MINILM} --sentences 800 {_FEW}", f"{MINILM} on 800 sentences of Tatoeba, {_TWIN}"),
    "named": (
        f"analyze {MINILM} --name minilm --sentences 300 --only {_NAMED},head_positional",
        f"{MINILM} on 300 sentences of Tatoeba, {_TWIN}",
    ),
    "heads": (
        f"heads {MINILM} --corpus grammar:2000 --sentences 500",
        f"{MINILM} on 500 generated sentences with trees",
    ),
    "probe": (
        f"probe {MINILM} --task upos,arc-label --corpus grammar:2000 --sentences 400",
        f"{MINILM} on 400 generated sentences, {_TWIN}",
    ),
    "edges": (
        f"probe {MINILM} --task upos,arc,arc-label --probe edge --corpus grammar:1000 --sentences 200 --no-control",
        f"{MINILM} on 200 generated sentences; whiskers: 95% intervals over sentences",
    ),
    "routes": (
        f"analyze {MINILM} --only route_importance --sentences 800",
        f"{MINILM} on 800 sentences of Tatoeba, {_TWIN}",
    ),
    "causal": (
        f"analyze causal-lm --only {_SMALL} --sentences 300 --no-control",
        f"the causal LM {_QUICK} on 300 {_TATOEBA}",
    ),
    "masked": (
        "analyze masked-lm --only usable_information --sentences 1500",
        f"the masked LM {_QUICK} on 1,500 {_TATOEBA}",
    ),
    "quick": ("study quick", f"models of the preset quick (6 layers of width 64, 2,400 updates) on {_TATOEBA}"),
    "course": (
        "study docs/methods/course.toml",
        f"two causal LMs (3 layers of width 64, 1,200 updates) on {_TATOEBA} and 2 seeds",
    ),
    "pretrained": (
        "experiments/studies/probing/pretrained",
        f"{MINILM} on 400 sentences of GUM or 500 pairs of SICK, {_TWIN}",
    ),
    "annotated": (
        "experiments/studies/annotated",
        "pretrained models on annotated text (GUM, LAMA, BLiMP); whiskers and bands: 95% intervals over sentences",
    ),
    "words": (
        f"probe {MINILM} --task upos --corpus grammar:2000 --sentences 300 --only probe_examples --no-control",
        f"{MINILM} on six words of generated sentences",
    ),
    "experts": (
        "analyze mixture --corpus grammar:4000 --sentences 600 --only expert_routing --no-control",
        "a mixture of four experts in three layers of width 64, trained on generated sentences by "
        "experiments/studies/experts/train.py",
    ),
    "translator": ("study docs/methods/translation.toml", ""),
    "source": (
        "analyze translation --only source_contribution --sentences 500 --no-control",
        f"the translation model of docs/methods/translation.toml (2 + 2 layers of width 64, 600 updates) on {_TATOEBA}",
    ),
    "examples": (
        f"analyze {MINILM} --only head_examples --sentences 100 --no-control",
        f"{MINILM}; the sentence of Tatoeba that shows this head most clearly",
    ),
    "agreement": (
        f"patch {SMOLLM2} --name SmolLM2 --pairs docs/methods/agreement.tsv --parts residual",
        "SmolLM2-135M-Instruct (4-bit weights) on ten pairs whose subjects differ in number; bands: 95% intervals over "
        "pairs",
    ),
    "massive": (
        f"analyze {SMOLLM2} --name SmolLM2 --only massive_ablation --sentences 10 --no-control",
        f"SmolLM2-135M-Instruct (4-bit weights) on ten {_TATOEBA}",
    ),
    "neurons": (
        f"analyze {MINILM} --only neurons_by_layer,neuron_examples --sentences 3000",
        f"{MINILM} on 3,000 sentences of Tatoeba; bands: 95% intervals over sentences",
    ),
    "stages": (
        "experiments/studies/over-training",
        "translation models of width 64 with four layers, 2,000 updates; medians over 3 seeds",
    ),
    "long": ("experiments/studies/long-texts", "SmolLM2 (135M) on long texts"),
    "detached": (
        "study docs/methods/detached.toml",
        f"a translation model (3 and 2 layers of width 64, 3,000 updates) on 150 pairs of {_TATOEBA}",
    ),
    "spectra": (f"analyze {MINILM} --only layer_spectrum --sentences 500", f"{MINILM} on 500 sentences of Tatoeba"),
    "grammar": (
        "experiments/studies/grammar",
        "encoders of three objectives on generated sentences; bands: 95% intervals over 3 seeds",
    ),
}
"""The runs behind the figures at the top of the pages: command (or folder with tables), and words of the caption."""
_NUMBERS = ("value", "low", "high", "baseline", "count")


def front(text: str) -> dict[str, list[str]]:
    """The front matter: lists of words by name.

    Raises:
        ValueError: The page has none.
    """
    if not (found := re.match(r"---\n(.*?)\n---\n", text, flags=re.DOTALL)):
        raise ValueError(f"A page of a method has no front matter: {text[:60]!r}")
    pairs = (line.split(":", 1) for line in found[1].splitlines())
    return {name.strip(): value.replace(",", " ").split() for name, value in pairs}


def page(text: str, root: Path) -> str:
    """The whole page of a method from its written part."""
    about = front(text)
    paths = about.get("measures", [])
    measures = [_object(path) for path in paths]
    used = [_object(path) for path in about.get("functions", [])]  # imports what declares the table
    schema = measures[0].table if measures else TABLES[about["table"][0]]
    intro, mark, rest = text.partition("\n## Traps\n")
    if about["order"][0] not in _KINDS:
        raise ValueError(f"The order of {schema.name} must be among {', '.join(_KINDS)}. Got {about['order'][0]}.")
    if not mark:
        raise ValueError(f"The page of {schema.name} has no section ## Traps.")
    costs = json.loads((root / "docs" / "methods" / "costs.json").read_text(encoding="utf-8"))
    names = [_name(path) for path in (*paths, *about.get("functions", []))]
    parts = [
        _captioned(intro.rstrip(), about),
        "\n## What is computed\n",
        *(_docstring(item, path) for item, path in zip(measures, paths, strict=True)),
        *(_docstring(item, path) for item, path in zip(used, about.get("functions", []), strict=True)),
        "\n## Unit, control, interval\n",
        _numbers(schema),
        "\n## Traps\n",
        rest.strip(),
        "\n## Cost\n",
        _cost(costs, [measure.__name__ for measure in measures] or [schema.name]),
        "\n## How it was checked\n",
        checks.told(root / "tests", names),
        _claims(schema.name),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _object(path: str) -> Any:
    room, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"infoflow.{room}"), name)


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _docstring(item: Any, path: str) -> str:
    """The docstring without its parts for callers, under a line that names and links it."""
    text = _PARTS.sub("", inspect.cleandoc(inspect.getdoc(item) or "") + "\n")
    kind = "Measure" if inspect.isclass(item) else "Function"
    return f"{kind} [`{path}`][infoflow.{path}]:\n\n{_fenced_examples(text).strip()}\n"


def _fenced_examples(text: str) -> str:
    """Lists need an empty line before them where a docstring has none."""
    return re.sub(r"(?<=[^\n])\n(- )", r"\n\n\1", text, count=1)


def _numbers(schema: Any) -> str:
    """What value, control and interval are, then all columns, folded."""
    by_name = {column.name: column for column in schema.columns}
    lines = [f"Table `{schema.name}`, version {schema.version}: {escaped(schema.description)}", ""]
    shown = [by_name[name] for name in _NUMBERS if name in by_name]
    if shown:
        lines += ["| column | unit | meaning |", "|---|---|---|"]
        lines += [f"| `{c.name}` | {cell(c.unit) or '–'} | {cell(c.description)} |" for c in shown] + [""]
    if "low" not in by_name:
        lines += ["No column of this table has an interval: it describes, and decides nothing by itself.", ""]
    folded = "\n".join(f"    {line}" if line else "" for line in columns(schema).splitlines())
    return "\n".join([*lines, '??? note "All columns"', "", folded, ""])


def _cost(costs: dict[str, Any], names: list[str]) -> str:
    """Seconds of the measure beside one bare pass, as measured."""
    names = list(dict.fromkeys(names))
    known = [(name, costs["measures"][name]) for name in names if name in costs["measures"]]
    if not known:
        return f"Not measured on the reference model: {costs['missing'].get(names[0], 'it takes other input')}.\n"
    lines = [
        f"CPU seconds on one thread, {costs['model']}, {costs['corpus']}; a bare pass over the same sentences took "
        f"{costs['bare']:.1f} s.",
        "",
        "| measure | seconds | bare passes |",
        "|---|---|---|",
        *(f"| `{name}` | {seconds:.1f} | {seconds / costs['bare']:.1f} |" for name, seconds in known),
        "",
        f"Measured with infoflow {costs['version']} by `tools/sitebuild/costs.py`; another machine has other seconds, "
        "while the ratio carries over better.",
    ]
    return "\n".join(lines) + "\n"


def _captioned(intro: str, about: dict[str, list[str]]) -> str:
    """The opening of a page with a caption below its figure: the run, and the command that made it."""
    if not (figure := about.get("figure")):
        return intro
    command, words = FIGURES[figure[0]]
    made = command if command.startswith("experiments/") else f"infoflow {command}"
    return re.sub(
        r"^!\[.*$",
        lambda line: f"{line[0]}\n\n*{words[:1].upper()}{words[1:]}*: `{made}`",
        intro,
        flags=re.M,
    )


def _claims(table: str) -> str:
    """The claims that read the table."""
    found = list(_reading(table))
    return "\n## Claims that read it\n\n" + "\n".join(found) + "\n" if found else ""


def _reading(table: str) -> Iterator[str]:
    from infoflow.findings import FINDINGS

    for finding in FINDINGS.values():
        if table in finding.all_tables:
            yield f"- [{escaped(finding.claim)}](../findings.md#{anchor(finding.id)}) (`{finding.id}`)"


def index(found: dict[str, str]) -> str:
    """The list of methods, with the question of each."""
    lines = ["# Methods", "", "One page for each measure of `infoflow analyze`, `compare` and studies: "]
    lines[-1] += "the question, what is computed, unit and control, traps, cost, and how it was checked."
    own = {path: text for path, text in found.items() if path.startswith("methods/")}
    for order, name in _KINDS.items():
        lines += ["", f"## {name}", "", "| table | question |", "|---|---|"]
        for path, text in sorted(own.items()):
            if f"\norder: {order}\n" in text[: text.index("\n---\n")]:
                question = re.search(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE)
                assert question, f"{path} has no question in bold"
                lines.append(f"| [`{Path(path).stem}`]({Path(path).name}) | {question[1]} |")
    lines += ["", "Tuning, pruning, transplanting and loss change allocation have guides of their own."]
    return "\n".join([*lines, ""])
