"""Chart forms shared by the figures."""
