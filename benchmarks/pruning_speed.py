"""What removing heads saves: the removed model beside the masked and the full one, at batch 1 and 32.

    python benchmarks/pruning_speed.py [--width 512] [--rounds 10] [--shares 0.5 0.75]

A translation model of 6 + 6 layers and 8 heads with random weights, 32 source and 32 target tokens, one thread. The
given share of the heads of every attention goes, in the masked model (`ablate`) and in the removed one (`prune`), whose
logits are the same. Each round runs all models once; milliseconds are medians, speed-ups medians of ratios in a round.
"""

import argparse
import copy
from dataclasses import replace

import torch
from training_step import new_model, random_data

from infoflow.foundation import set_threads
from infoflow.heads import ablate, all_heads, prune
from infoflow.models import Model, load_model, model_inputs
from infoflow.objectives import Translation, Vocabulary
from infoflow.pruning import compare_speed


def same_logits(one: Model, other: Model) -> float:
    """Largest difference of the logits on random tokens."""
    ids = torch.randint(5, 4000, (4, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        first, second = (
            model.module(**model_inputs(model, ids, decoder_input_ids=ids)).logits for model in (one, other)
        )
    return float((first - second).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.75])
    arguments = parser.parse_args()
    set_threads(1)
    special = {"pad": 0, "start": 2, "end": 3, "mask": 4, "special": (0, 1, 2, 3, 4)}
    data = random_data(Vocabulary(size=4000, **special))
    full = replace(load_model(new_model(Translation(), data, arguments.width), device="cpu"), name="full")
    heads = all_heads(full.anatomy)
    for share in arguments.shares:
        gone = [head for head in heads if head[3] < round(8 * share)]
        masked = replace(load_model(copy.deepcopy(full.module), device="cpu"), name=f"masked, {share:.0%}")
        removed = replace(prune(full, gone), name=f"removed, {share:.0%}")
        with ablate(masked, gone):
            table = compare_speed([full, masked, removed], rounds=arguments.rounds)
            difference = same_logits(masked, removed)
        print(table.to_string(index=False, float_format="{:.2f}".format))
        print(f"largest difference of a logit between masked and removed: {difference:.1e}\n", flush=True)


if __name__ == "__main__":
    main()
