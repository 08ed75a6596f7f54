"""Head weights: what the weights of heads show without any text: copying, composition, positions."""
