"""QAMR's questions about single sentences as tables that `[retrieval] corpus` reads.

    python experiments/studies/retrieval/qamr.py FOLDER --out runs/qamr

FOLDER holds train and test parts of https://github.com/uwnlp/qamr: `PART.sentences.tsv` and `PART.questions.tsv`, plain
or .gz.
"""

import argparse
import json
from pathlib import Path

from infoflow.corpus import Corpus
from infoflow.foundation import atomic_write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for part in ("train", "test"):
        files = [_find(arguments.folder, f"{part}.{kind}.tsv") for kind in ("sentences", "questions")]
        corpus = Corpus.from_word_answers(*files)
        with atomic_write(arguments.out / f"{part}.jsonl") as path, path.open("w", encoding="utf-8") as file:
            for one in corpus:
                row = {"text": one.text, "question": one.question, "answers": one.answers}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{arguments.out / part}.jsonl: {len(corpus):,} questions")


def _find(folder: Path, name: str) -> Path:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), folder / name)


if __name__ == "__main__":
    main()
