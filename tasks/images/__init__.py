"""Images: where they come from, how they are changed, which networks see them, how they score."""
