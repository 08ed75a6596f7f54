"""One file per source and subject; `others`: sources with one or two claims."""
