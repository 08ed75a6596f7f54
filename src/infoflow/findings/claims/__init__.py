"""Claims, in one file per source and subject; the files `others` hold sources with one or two claims."""
