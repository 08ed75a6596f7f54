"""A study of readers so small that a test can train it: twelve entities, six updates."""

from infoflow.studies import StudyPlan

SETTINGS = {
    "on": True,
    "entities": 12,
    "relations": 4,
    "objects": 4,
    "exposures": [1, 2],
    "language": 0.2,
    "updates": 6,
    "queries": 12,
    "warm_updates": 4,
    "exchange_updates": 2,
    "save_every": 2,
    "refresh_every": 3,
    "vector_width": 8,
    "learning_rate": 1e-2,
    "repeat": False,
}
PLAN = {
    "objectives": ["masked-lm"],
    "corpus": {"name": "grammar:300", "vocabulary": 120, "test": 0.3, "validation": 0.1},
    "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32, "dropout": 0.0, "positions": 64},
    "training": {"updates": 2, "batch_tokens": 256, "device": "cpu"},
    "analysis": {"tables": ["task_scores"], "untrained": False},
    "alignment": {"on": False},
    "retrieval": SETTINGS,
}


def plan_with(**changes) -> StudyPlan:
    """That study with other settings of `[retrieval]`."""
    return StudyPlan.from_json({**PLAN, "retrieval": {**SETTINGS, **changes}})
