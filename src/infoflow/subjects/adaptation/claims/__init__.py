"""Claims about adaptation, and how their tables are read."""
