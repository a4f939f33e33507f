"""Named peers, each run as its own process."""
