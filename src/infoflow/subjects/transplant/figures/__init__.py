"""Figures of fresh models with heads of a trained one."""
