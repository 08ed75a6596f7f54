"""A vocabulary with five special ids and forty-five ordinary ones."""

import pytest


@pytest.fixture(scope="session")
def vocabulary():
    from infoflow.objectives import Vocabulary

    return Vocabulary(size=50, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4))
