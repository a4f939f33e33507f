"""Windows, conditions, relations and lifecycle over frames."""
