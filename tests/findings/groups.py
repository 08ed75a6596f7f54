"""The first models that tables are about."""


def models_of(tables):
    from infoflow.findings import model_groups

    return model_groups(tables, tables)[0]
