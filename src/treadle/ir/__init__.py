"""The typed functional IR: types, nodes, builder, verifier, text form, reference interpreter, rewriting, files."""
