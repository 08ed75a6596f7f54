"""Which scores the figure of learned tasks draws, each beside its own reference."""

import small_run
from drawn import drawn_figures

ASKED = {  # metric: objective, value, baseline, how it is called
    "loss": ("masked-lm", 4.0, 5.0, "loss (nats per token): lower is better"),
    "bleu": ("translation", 20.0, 1.0, "BLEU: higher is better"),
    "rougeL": ("bart", 0.8, 0.7, "ROUGE-L: higher is better"),
    "next-sentence accuracy": ("masked-lm-nsp", 0.7, 0.6, "next-sentence accuracy: higher is better"),
    "sentence-order accuracy": ("masked-lm-sop", 0.6, 0.5, "sentence-order accuracy: higher is better"),
    "replaced-token AUC": ("electra", 0.9, 0.5, "replaced-token AUC: higher is better"),
    "pair AUC": ("skip-gram", 0.6, 0.5, "AUC of true pairs of words: higher is better"),
}
REFERENCES = (
    "unigram frequencies for loss; a copy of the source (or one fixed sentence for all, "
    "in scripts without spaces) for BLEU; a copy of what the encoder reads for ROUGE-L; the "
    "more frequent answer for next-sentence accuracy"
)


def score(metric: str, objective: str, value: float, baseline: float) -> dict:
    keys = small_run.keys_of(objective) | {"split": "test", "metric": metric, "signature": ""}
    return keys | small_run.estimate(value, 0.05, baseline)


def test_each_score_of_the_table_has_a_panel_and_a_reference(tmp_path) -> None:
    rows = [score(metric, *asked[:3]) for metric, asked in ASKED.items()]
    rows += [score("perplexity", "masked-lm", 55.0, 150.0), score("loss of generator", "electra", 4.0, 5.0)]
    figure = drawn_figures(small_run.write_run(tmp_path, task_scores=rows), "training")["task-scores"]
    assert [panel.title for panel in figure.panels] == [title for *_, title in ASKED.values()]
    assert REFERENCES in figure.how_to_read[0]
    told = [line for line in figure.answer if line.startswith("ROUGE-L")]
    assert told == [
        "ROUGE-L: BART 0.80 (0.75 to 0.85) against 0.7; better than the reference, a copy of what the encoder reads."
    ]


def test_a_table_without_them_has_no_empty_panel(tmp_path) -> None:
    rows = [score("loss", *ASKED["loss"][:3])]
    figure = drawn_figures(small_run.write_run(tmp_path, task_scores=rows), "training")["task-scores"]
    assert len(figure.panels) == 1
    assert "ROUGE" not in figure.how_to_read[0]
