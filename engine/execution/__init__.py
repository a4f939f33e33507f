"""Carries a plan out: intent, act, verify, result; and after a crash, look."""
