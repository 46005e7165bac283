"""Machine code for CPUs, generated with LLVM: the pieces of a program that XLA compiles less well."""
