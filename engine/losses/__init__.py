"""From the curves of a training log to a verdict with its evidence."""
