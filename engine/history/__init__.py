"""Samples on a grid of slots: recorded files, the embedded store, and the frame they yield."""
