"""Seeds of models that are made of a trained one, and share no batch order, noise or dropout with it."""

from infoflow.foundation import hash64


def derived_seed(purpose: str, seed: int) -> int:
    """A seed from 2³¹ on, which no plan gives, that the purpose and the trained model's seed alone give."""
    return 2**31 + hash64(purpose, seed) % 2**31
