"""Stage times to a step: pipeline schedules."""
