"""Subjects, which can be read, owned and removed one by one; all have the same parts.

- `measures`: what is computed, with its tables
- `settings`: `SECTIONS` of a study's plan
- `stages`: `STAGES` of a study, each with its place in the order of work
- `claims`: claims of the literature; `DERIVED` tables, computed from a run's other tables
- `figures`: `SECTIONS` of the report, each with its place on the page; `CARDS` of its front page
- `command`: the functions behind `COMMANDS`, which the subject's own `__init__` lists

A part that a subject does not need is absent. See `infoflow._subjects`.
"""
