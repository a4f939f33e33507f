"""The keys of a policy file, as pydantic models: what is allowed where, and in which unit."""
