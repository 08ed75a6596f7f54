"""Commands on adaptation."""
