"""The parts of the loader, in the order in which `rules/loader.py` uses them."""
