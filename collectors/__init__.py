"""What is looked at: one module per source, named in one lazy table."""
