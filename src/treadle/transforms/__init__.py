"""Passes: each file holds one, from module to module, found by its file name. `pipeline` runs them in order."""
