"""Builds the documentation site: `python -m sitebuild` with this folder on the path. Not part of the package."""
