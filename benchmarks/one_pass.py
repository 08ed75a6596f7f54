"""All first measures in one pass against one pass each, and memory on ten times the sentences.

    .venv/bin/python benchmarks/one_pass.py              # about 3 minutes on 2 cores
    .venv/bin/python benchmarks/one_pass.py --sentences 1000

Prints ratios of one run. Memory is the peak of a fresh process that measures `grammar` with a matched masked LM (width
64, 6 layers), its own and with the pages of mapped files (the corpus); token samples lie on disk and are bounded by the
requests.
"""

import argparse
import subprocess
import sys
import time

from _memory import PrivatePeak, peak_megabytes


def tiny_model(corpus):
    """An untrained masked LM of the `quick` study's shape."""
    from infoflow.corpus import train_tokenizer
    from infoflow.models import load_model
    from infoflow.objectives import Vocabulary, make_objective
    from infoflow.training import ModelConfig, build_models

    tokenizer = train_tokenizer((sentence.text for sentence in corpus[:2000]), vocab_size=400)
    config = ModelConfig(width=64, feedforward=256)
    modules = build_models([make_objective("masked-lm")], config, Vocabulary.from_tokenizer(tokenizer))
    return load_model(modules["masked-lm"], tokenizer=tokenizer)


def measures():
    from infoflow.heads import Confidence, Entropy, PositionalScores
    from infoflow.representations import IdentityNeighbours, LayerDistance, MutualInformation

    return [
        MutualInformation(clusters=200, types=200, occurrences=5000),
        LayerDistance(occurrences=5000),
        IdentityNeighbours(k=20, occurrences=5000),
        Confidence(),
        Entropy(),
        PositionalScores(),
    ]


def one_pass_against_many(sentences: int) -> None:
    from infoflow.corpus import generate_grammar
    from infoflow.flow import measure
    from infoflow.foundation import set_threads

    set_threads(2)
    corpus = generate_grammar(sentences)
    model = tiny_model(corpus)
    measure(model, corpus, measures()[3:4])  # warm the encoding's cache
    started = time.perf_counter()
    measure(model, corpus, measures())
    together = time.perf_counter() - started
    started = time.perf_counter()
    for each in measures():
        measure(model, corpus, [each])
    apart = time.perf_counter() - started
    print(f"one pass for 6 measures {together:.1f} s, one pass each {apart:.1f} s: ratio {apart / together:.2f}")


def peaks_of_child(sentences: int) -> list[float]:
    """Peaks of a fresh process that measures so many sentences, in MiB: its own memory, and all that was resident."""
    command = [sys.executable, __file__, "--child", str(sentences)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(number) for number in output.split()[-2:]]


def child(sentences: int) -> None:
    from infoflow.corpus import generate_grammar
    from infoflow.flow import measure
    from infoflow.foundation import set_threads

    set_threads(2)
    corpus = generate_grammar(sentences)
    with PrivatePeak() as peak:
        measure(tiny_model(corpus), corpus, measures())
    print(peak.megabytes, peak_megabytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=5000)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    one_pass_against_many(arguments.sentences)
    few, many = peaks_of_child(arguments.sentences), peaks_of_child(10 * arguments.sentences)
    for name, small, large in zip(("own memory", "with mapped files"), few, many, strict=True):
        print(
            f"peak, {name}: {small:.0f} MiB on {arguments.sentences:,} sentences, {large:.0f} MiB on ten times as "
            f"many: ratio {large / small:.3f}"
        )


if __name__ == "__main__":
    main()
