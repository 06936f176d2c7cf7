"""Opinions of aspects: where they come from, which networks see them, how they score."""
