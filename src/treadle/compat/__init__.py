"""Faces that programs for other frameworks know, each a thin layer over Treadle's parts: `compat.mindspore`."""
