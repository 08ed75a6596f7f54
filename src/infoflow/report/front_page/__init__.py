"""The front page of the report: the question, three pictures that answer it, and what to trust."""
