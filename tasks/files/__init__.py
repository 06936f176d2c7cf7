"""Files that a configuration names, fetched where absent, and caches of what is made of them."""
