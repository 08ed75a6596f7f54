"""Experts: which feed-forward experts a mixture-of-experts model uses for which words."""
