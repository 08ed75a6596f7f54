// Asked for where the site is opened from disk; the search works when it is served.
