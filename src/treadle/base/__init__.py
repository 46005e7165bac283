"""Vocabulary that every other package may use: errors, flags, events, text, source positions, element types."""
