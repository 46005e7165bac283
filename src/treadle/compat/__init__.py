"""Faces that other frameworks' programs know: `treadle.compat.mindspore`. Each is a thin layer over Treadle's own parts."""
