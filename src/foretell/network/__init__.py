"""Seconds of a collective: placement of groups on tiers, and the time of their messages."""
