"""Built-in policy packs."""
