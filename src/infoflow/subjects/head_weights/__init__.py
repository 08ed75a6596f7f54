"""Head weights: what the weights of heads say without any text: copying, composition, positions."""
