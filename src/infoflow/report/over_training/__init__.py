"""Figures of how models became what they are: everything by the updates that they had."""
