"""Formulas: tensors written element by element. Layers: expr < affine < formula/text < interp < derivative.

Data enters as expressions built by `treadle.te` or by the ops' `formula` rules, and leaves as a `Formula`, which is
printed, evaluated with NumPy, differentiated, lowered by the op `compute` and compiled by the kernel engine.
"""
