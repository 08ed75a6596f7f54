"""The forms of charts that figures share."""
