"""Two examples for each command, shown at the end of its `--help`, with the models that `make study` trains."""

_MASKED, _CAUSAL = "runs/quick/models/masked-lm/seed-0", "runs/quick/models/causal-lm/seed-0"

EXAMPLES: dict[str, tuple[str, str]] = {
    "study": ("quick", "study.toml --seeds 0,1,2 --out runs/mine"),
    "analyze": (f"{_MASKED} --sentences 500", f"{_MASKED} --only head_entropy"),
    "heads": (f"{_MASKED} --corpus grammar:500", f"{_CAUSAL} --sentences 500 --top 3"),
    "view": (f'{_MASKED} "the old cat sleeps"', f'{_MASKED} "old cat" --words grammar'),
    "report": ("runs/quick", "runs/quick --to hf:USER/NAME"),
    "list": ("presets", "tables"),
    "train": ("masked-lm --plan study.toml --seed 7", "causal-lm --checkpoints log:20 --out runs/watched"),
    "tune": (f"{_MASKED} --train train.tsv", f"{_MASKED} --train train.tsv --seeds 0"),
    "compare": (f"{_MASKED} {_CAUSAL}", f"{_MASKED} bert-base-uncased"),
    "probe": (f"{_MASKED} --task word", f"{_MASKED} --task upos --corpus grammar"),
    "fill-in": (f"{_MASKED} --facts facts.tsv", f"{_CAUSAL} --facts facts.tsv"),
    "bert-score": (f"{_MASKED} --pairs pairs.tsv", f"{_MASKED} --pairs pairs.tsv --idf"),
    "predict": (f'{_MASKED} "the old ___ sleeps ."', f'{_CAUSAL} "I want to" --tokens 9'),
    "prune": (f"{_MASKED} --keep 50% --out smaller", f"{_MASKED} --keep 40,20,10 --out sizes"),
    "patch": (f"{_CAUSAL} --pairs grammar:200", f"{_CAUSAL} --pairs my.tsv --parts key"),
    "over-training": ("my-checkpoints/ --corpus wiki.txt", "EleutherAI/pythia-70m@log:12"),
    "explore": (_MASKED, f"{_MASKED} {_CAUSAL}"),
    "findings": ("runs/quick", "runs/quick --claims my_claims.py"),
    "dynamics": ("runs/quick", "runs/quick runs/mine --top 5"),
    "over-scale": ("runs/small runs/wide", "runs/small runs/longer runs/wide --out runs/scale"),
    "merge": ("part-0 part-1", "part-0 part-1 --out whole"),
    "data get": ("tatoeba-en-fr", "hf:OWNER/NAME --text-column text"),
    "data describe": ("tatoeba-en-fr", "wiki.txt --documents"),
    "data show": ('"the old cat sleeps"', '"the old cat sleeps" --objective masked-lm,bart'),
    "data index": ("wiki.txt --out wiki-index", 'wiki-index --ask "where is Paris"'),
    "doctor": ("", f"{_MASKED} --corpus wiki.txt"),
    "stages": ("runs/quick --json", "study.toml --out runs/mine --json"),
    "stage": ("runs/mine 3f1c9a7be2d04856", "runs/mine 3f1c9a7be2d04856 --threads 2"),
    "worker": ("runs/mine", "runs/mine --processes 2 --patience 2h"),
}
"""The arguments after the command's name."""


def examples(name: str) -> list[str]:
    return [f"infoflow {name} {rest}".rstrip() for rest in EXAMPLES.get(name, ())]


def epilogue(name: str) -> str:
    lines = "\n".join(examples(name))
    return f"**Examples**\n\n```sh\n{lines}\n```" if lines else ""
