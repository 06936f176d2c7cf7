"""Questions about texts: where they come from, which networks read them, how answers score."""
