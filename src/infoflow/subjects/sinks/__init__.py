"""Sinks: tokens that take most attention and say little, and the few massive activations behind them."""
