"""Predictions of two versions side by side: which moved, by how much, and by which change."""
