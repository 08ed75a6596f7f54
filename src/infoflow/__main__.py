"""`python -m infoflow`, which `torchrun -m` needs."""

from infoflow.cli import main

main()
