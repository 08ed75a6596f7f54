"""Claims about transplant, and how their tables are read."""
