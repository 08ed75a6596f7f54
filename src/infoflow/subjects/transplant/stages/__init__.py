"""Stages of a study on transplant."""

from ._transplant import Transplant as Transplant
