"""The page and its JSON API."""
