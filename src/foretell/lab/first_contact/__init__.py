"""The ledger of first contacts: predictions of rows that no version had seen, kept for ever.

contact.py    one predicted number of one measured row
ledger.py     waves and the files that hold them, `first_contacts(kind)`
scores.py     aggregates of rows: median source, share more than 25 % off, coverage of rows and of sources
entry.py      a scored table as a new entry: `foretell validate ... --first-contact NAME`
lines.py      lines that a scorer prints of a wave whose rows are sealed
page.py       tables, sentences and JSON of all that
render.py     the sections of README.md, docs/first-contact.md and docs/accuracy.md; `python -m` writes them
waves/        one file for each kind and wave; nothing in it is ever changed
"""
