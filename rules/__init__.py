"""The policy language: quantities, signals, conditions, policies, and the strict loader."""
