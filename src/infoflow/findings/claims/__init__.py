"""One file per claim, named after its id."""
