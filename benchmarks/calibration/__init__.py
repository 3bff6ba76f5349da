"""Difficulty that is measured: what each level of a dial does to play and to reading, without a language model."""
