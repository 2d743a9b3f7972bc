"""What a number stands on, and how far from the truth it may be."""
