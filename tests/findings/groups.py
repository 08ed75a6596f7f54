"""The first models that tables are about."""


def models_of(tables):
    from infoflow.findings import model_groups

    return model_groups(tables, tables)[0]


def with_models(finding, tables) -> bool:
    """Whether the tables hold models of all objectives and architectures that the claim is about."""
    scores = tables["task_scores"]
    asked = {table.architecture for reading in finding.reads.values() for table in reading.tables} - {""}
    if asked - set(scores.get("architecture", ["bert"])):
        return False
    variants = scores["variant"] if "variant" in scores else [""] * len(scores)
    pairs = zip(scores["objective"], variants, strict=True)
    return {one.label for one in finding.learned} <= {
        f"{name}+{variant}" if variant else name for name, variant in pairs
    }
