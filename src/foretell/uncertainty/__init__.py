"""What a number rests on, and how far from the truth it may be."""
