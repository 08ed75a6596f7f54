"""What objects show of themselves in a notebook: pictures that need neither scripts nor a network."""
