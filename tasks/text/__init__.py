"""Text: words and pieces of words with the places they stand at, vectors of words, encoders."""
