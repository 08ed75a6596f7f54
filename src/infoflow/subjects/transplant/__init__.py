"""Transplants: whether the trained heads of one model help another to learn."""
