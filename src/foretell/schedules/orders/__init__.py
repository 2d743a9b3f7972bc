"""Pipeline schedules, one file each: `SCHEDULE` in closed form and as an order of tasks.

A file's name is the word of its schedule in plans, with _ for -; a leading _ is none of it (`_1f1b.py`):
no module's name begins with a digit.
"""
