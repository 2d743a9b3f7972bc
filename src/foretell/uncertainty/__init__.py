"""What a number is on, and how far from the truth it may be."""
