import numpy as np
import pytest
import torch

from infoflow.heads import rare_token_score


def example(seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.softmax(3 * torch.randn(2, 6, 3, 8, 8, generator=generator, dtype=torch.float64), dim=-1)
    valid = torch.rand(6, 8, generator=generator) > 0.2
    ranks = torch.randint(1, 30, (6, 8), generator=generator)
    ranks[4] = torch.randint(1, 5, (8,), generator=generator)  # nothing rare
    return weights, valid, ranks


@pytest.mark.parametrize("average", ["per_query", "per_sentence"])
@pytest.mark.parametrize("rarest", [1, 2])
def test_agrees_with_definition(rarest, average):
    weights, valid, ranks = example()
    score = rare_token_score(weights, valid, ranks, top=20, rarest=rarest, average=average)
    for layer in range(2):
        for head in range(3):
            sentences = []
            for b in range(6):
                keys = [j for j in range(8) if valid[b, j]]
                kinds = sorted({int(ranks[b, j]) for j in keys})
                if kinds[-1] <= 20:
                    continue
                row = weights[layer, b, head]
                chosen = [max(keys, key=lambda j, i=i, row=row: float(row[i, j])) for i in keys]
                sentences.append([int(ranks[b, j]) in kinds[-rarest:] for j in chosen])
            assert 0 < len(sentences) < 6
            units = [np.mean(s) for s in sentences] if average == "per_sentence" else np.concatenate(sentences)
            expected = np.mean(units)
            assert float(score[layer, head]) == pytest.approx(expected)


def test_no_rare_token_anywhere_is_undefined():
    weights, valid, ranks = example()
    assert rare_token_score(weights, valid, ranks, top=500).isnan().all()


def test_every_position_of_the_rarest_type_counts():
    weights = torch.tensor([0.1, 0.5, 0.1, 0.3]).expand(1, 1, 1, 4, 4)
    ranks = torch.tensor([[1, 900, 3, 900]])
    assert rare_token_score(weights, torch.ones(1, 4, dtype=torch.bool), ranks).item() == 1


def test_no_sentences_have_no_score():
    score = rare_token_score(torch.ones(1, 0, 2, 3, 3), torch.ones(0, 3), torch.ones(0, 3, dtype=torch.int64))
    assert score.isnan().all()
