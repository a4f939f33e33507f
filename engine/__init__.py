"""From samples to decisions: history, evaluation, lifecycle, and the audit over them."""
