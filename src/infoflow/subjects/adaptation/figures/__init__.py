"""Figures of tuned models: how well they do, and what tuning changed inside them."""
