"""From Python to IR: tensors, traces of functions, nested containers, and keys that say when a program may be used
again."""
