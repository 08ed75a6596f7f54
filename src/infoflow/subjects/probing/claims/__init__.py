"""Claims about probes."""
