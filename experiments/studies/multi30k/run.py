"""Train a translation model on Multi30k and find out which of its heads it needs.

    .venv/bin/python experiments/studies/multi30k/run.py PATH/TO/multi30k --out runs/multi30k

`PATH/TO/multi30k` holds `train.en.gz`, `train.de.gz`, `val.en.gz`, ... (plain files will do). The study is that of
`plan.toml` beside this file, or of another (`--plan experiments/studies/multi30k/three-seeds.toml`), with the corpus'
published parts filled in. Interrupted, the same command continues.
"""

import argparse
import dataclasses
from pathlib import Path

from infoflow.foundation import UserError, set_threads
from infoflow.studies import StudyPlan, study


def pair(folder: Path, part: str) -> str:
    """The two files of a part as `load_corpus` takes them."""
    names = []
    for language in ("en", "de"):
        found = [path for ending in (".gz", "") if (path := folder / f"{part}.{language}{ending}").is_file()]
        if not found:
            raise UserError(f"{folder} must hold {part}.{language}.gz or {part}.{language}. It has neither.")
        names.append(str(found[0]))
    return ",".join(names)


def plan_for(folder: Path, plan: Path, other_domain: str) -> StudyPlan:
    """The plan on the corpus in `folder`."""
    study_plan = StudyPlan.load(plan)
    corpus = dataclasses.replace(
        study_plan.corpus,
        name=pair(folder, "train"),
        validation_name=pair(folder, "val"),
        test_name=pair(folder, "test"),
        transfer_name=other_domain,
    )
    return dataclasses.replace(study_plan, corpus=corpus)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder with train, val and test files")
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k"))
    parser.add_argument("--plan", type=Path, default=Path(__file__).with_name("plan.toml"))
    parser.add_argument("--other-domain", default="", help="English–German pairs that are no captions (heads:M5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1, help="models at a time; they share the threads")
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    try:
        plan = plan_for(arguments.corpus, arguments.plan, arguments.other_domain)
        study(plan, arguments.out, num_processes=arguments.processes)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
