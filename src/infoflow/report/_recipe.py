"""A study's model and training compared with those of the papers."""

from infoflow.results import RunFolder

PUBLISHED = ("this study", "Voita et al. 2019", "lecture slides")
_RECIPE: dict[str, tuple[str, str]] = {
    "text": ("WMT, English to German or French", "Europarl, WMT"),
    "vocabulary": ("about 32,000", "–"),
    "layers": ("6", "12"),
    "decoder layers": ("6", "–"),
    "width": ("512", "512"),
    "heads": ("8", "8"),
    "feed-forward width": ("2,048", "2,048"),
    "positions": ("fixed sinusoids", "–"),
    "dropout": ("0.1", "0.1"),
    "attention dropout": ("–", "0"),
    "peak learning rate": ("0.0014", "0.0005"),
    "schedule": ("inverse square root", "polynomial"),
    "warm-up, updates": ("16,000", "8,000"),
    "updates": ("until convergence", "125,000 or 600,000"),
    "batch": ("about 16,000 source tokens", "256 or 2,048 samples of 512 tokens"),
    "Adam, β and ε": ("0.9, 0.98, 1e-09", "0.9, 0.98, 1e-06"),
    "weight decay": ("–", "0.01"),
    "gradient clipping": ("–", "off"),
    "label smoothing": ("0.1", "–"),
}
"""Settings as published: Voita et al. 2019 (both papers; rate, warm-up, batch and smoothing as in the authors' scripts
for the heads paper) and the lecture's slides (fairseq's RoBERTa, and its study of LM and MT)."""


def recipe(run: RunFolder) -> list[tuple[str, str, str, str]]:
    """Setting, value in this study and the two published ones; [] unless the run is a study."""
    manifest = run.read()
    if manifest.get("kind") != "study":
        return []
    plan = manifest.get("plan", {})
    corpus, model, training = (plan.get(name) or {} for name in ("corpus", "model", "training"))
    updates, warmup = training.get("updates", 0), training.get("warmup", 0)
    betas, epsilon = training.get("betas") or (), training.get("epsilon")
    amplitude = model.get("sinusoidal_positions")
    ours = {
        "text": f"{corpus.get('name', '–')}, at most {corpus.get('max_words', '–')} words",
        "vocabulary": _count(corpus.get("vocabulary")),
        "layers": _count(model.get("layers")),
        "decoder layers": _count(model.get("decoder_layers") or model.get("layers")),
        "width": _count(model.get("width")),
        "heads": _count(model.get("heads")),
        "feed-forward width": _count(model.get("feedforward")),
        "positions": f"fixed sinusoids × {amplitude:g}" if amplitude else "learned",
        "dropout": _count(model.get("dropout")),
        "attention dropout": _count(model.get("attention_dropout")),
        "peak learning rate": _count(training.get("learning_rate")),
        "schedule": str(training.get("schedule", "–")).replace("_", " "),
        "warm-up, updates": _count(round(warmup * updates) if warmup < 1 else warmup),
        "updates": _count(updates),
        "batch": f"{_count(training.get('batch_tokens'))} source tokens",
        "Adam, β and ε": ", ".join(_count(value) for value in (*betas, epsilon)),
        "weight decay": _count(training.get("weight_decay")),
        "gradient clipping": _count(training.get("clip") or "off"),
        "label smoothing": _count(training.get("label_smoothing")),
    }
    return [(name, ours[name], *values) for name, values in _RECIPE.items()]


def _count(value: object) -> str:
    """A setting as text, with separators between thousands."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
