"""Sinks: tokens that take most attention but contribute little, and the few massive activations behind them."""
