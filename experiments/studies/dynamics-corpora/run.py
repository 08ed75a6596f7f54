"""Does the corpus change who does the learning, or only the objective? One study per corpus, then their comparison.

    python experiments/studies/dynamics-corpora/run.py --out runs/corpora               # an hour of CPU; see the README
    python experiments/studies/dynamics-corpora/run.py --out runs/corpora --only tatoeba grammar
    python experiments/studies/dynamics-corpora/run.py --out runs/corpora --also europarl=europarl.en,europarl.fr

Each corpus is a study of its own in a folder under `--out`, with the plan beside this file but for `[corpus]`; the
comparison lies in `--out/compared`. Interrupted, the same command continues; corpora that are done are kept.
`--set training.updates=20` and the like change the plan, for a try.
"""

import argparse
import dataclasses
from pathlib import Path

from infoflow.cli import with_settings
from infoflow.corpus import load_corpus
from infoflow.foundation import UserError, atomic_write, make_display, set_threads, use_display
from infoflow.studies import CorpusPlan, StudyPlan, study
from infoflow.subjects.allocation.stages import compare_recordings

# Size: 10,000 of the pairs. Language pair: the same sentences the other way round. Domain: generated sentences.
CORPORA = {
    "tatoeba": {},
    "tatoeba-10k": {"sentences": 10_000},
    "tatoeba-fr-en": {"name": "fr-en.tsv"},
    "grammar": {"name": "grammar:30000", "max_words": 24, "vocabulary": 1000},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--also", nargs="+", default=[], metavar="NAME=CORPUS", help="anything that load_corpus takes")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    plan = with_settings(StudyPlan.load(Path(__file__).with_name("plan.toml")), arguments.set)
    also = dict(entry.split("=", 1) for entry in arguments.also)
    corpora = {name: CORPORA[name] for name in arguments.only} | {name: {"name": path} for name, path in also.items()}
    with use_display(make_display("plain")):
        runs = []
        for name, settings in corpora.items():
            corpus = dataclasses.replace(plan.corpus, **settings)
            one = dataclasses.replace(plan, title=f"{plan.title} {name}", corpus=_found(corpus, arguments.out))
            runs.append(study(one, arguments.out / name, arguments.processes).path)
        if len(runs) < 2:
            raise UserError("One corpus cannot be compared with another: name two or more.")
        compared = compare_recordings(runs, arguments.out / "compared")
    finding = compared.findings.iloc[0]
    print(f"{finding['id']}: {finding['verdict']}. {finding['reason']}")
    print(f"Report: {compared.folder.report}")


def _found(corpus: CorpusPlan, out: Path) -> CorpusPlan:
    """The plan with the reversed pairs written out, where it asks for them."""
    if corpus.name != "fr-en.tsv":
        return corpus
    path = out / corpus.name
    if not path.exists():
        pairs = load_corpus("tatoeba-en-fr")
        texts, translations = pairs.column("text"), pairs.column("translation")
        out.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            lines = (f"{there}\t{here}\n" for here, there in zip(texts, translations, strict=True))
            temporary.write_text("".join(lines), encoding="utf-8")
    return dataclasses.replace(corpus, name=str(path))


if __name__ == "__main__":
    main()
