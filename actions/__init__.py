"""What is done: one module per action, named in one lazy table."""
