"""Claims about retrieval, and how their tables are read."""
