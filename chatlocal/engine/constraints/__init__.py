"""Grammars for constrained decoding: what a text may be, turned into a mask over token ids at every step."""
