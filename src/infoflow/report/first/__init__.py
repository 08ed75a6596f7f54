"""The first screen of the report: what was asked, three pictures that answer it, and what to trust."""
