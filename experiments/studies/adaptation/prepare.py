"""Cut tasks to the size of the experiment: python prepare.py DATA OUT.

DATA has pairs/sick, classify/scicite, ner/scierc-ner, and for `domain.toml` books and acl-abstracts.

Lines are taken in the order of their files; sentences of at most 24 words (12 for each of a pair)
fit the positions that pretraining saw.
"""

import gzip
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

SIZES = {"train": 1600, "dev": 400, "test": 800}
LONGEST = 24  # words


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().split("\n")


def short(rows: Iterable[str], texts: int) -> list[str]:
    """Rows whose last `texts` fields are short."""
    return [row for row in rows if row and all(len(t.split()) * texts <= LONGEST for t in row.split("\t")[-texts:])]


def sentences(rows: list[str]) -> list[str]:
    """Blocks of tagged words."""
    blocks = "\n".join(rows).split("\n\n")
    return [block.strip("\n") for block in blocks if block.strip() and block.strip("\n").count("\n") < LONGEST]


def main(data: Path, out: Path) -> None:
    for part, size in SIZES.items():
        tasks = {
            "sick": short(lines(data / f"pairs/sick/{part}.tsv.gz"), 2),
            "scicite": short(lines(data / f"classify/scicite/{part}.tsv.gz"), 1),
            "scierc": [block + "\n" for block in sentences(lines(data / f"ner/scierc-ner/{part}.tsv.gz"))],
        }
        for name, rows in tasks.items():
            folder = out / name
            folder.mkdir(parents=True, exist_ok=True)
            suffix = "tagged" if name == "scierc" else "tsv"
            (folder / f"{part}.{suffix}").write_text("\n".join(rows[:size]) + "\n", encoding="utf-8")
            print(name, part, len(rows[:size]), "of", len(rows))
    for name, source in {"books": "books", "abstracts": "acl-abstracts"}.items():
        shutil.copyfile(data / source / "train.txt.gz", out / f"{name}.txt.gz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
