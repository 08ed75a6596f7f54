"""Figures of fresh models that hold heads of a trained one."""
