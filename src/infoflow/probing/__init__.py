"""Probes: what can be read from each layer, and how hard it is to read."""

from ._attention_probe import AttentionProbe as AttentionProbe
from ._examples import Examples as Examples
from ._examples import Part as Part
from ._examples import ProbeTask as ProbeTask
from ._examples import Unit as Unit
