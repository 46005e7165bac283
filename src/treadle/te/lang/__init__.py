"""Spellings of other operator languages."""
