"""Claims about allocation, and how their tables are read."""
