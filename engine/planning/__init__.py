"""From findings to one plan per resource: what is due, and which guard lets or stops it."""
