"""The ledger of first contacts: predictions of rows that no version had seen, kept for ever.

ledger    one predicted number of one measured row, waves and their files, `first_contacts(kind)`,
          and aggregates of rows: median source, share more than 25 % off, coverage of rows and of sources
entry     a scored table as a new entry: `foretell validate ... --first-contact NAME`; lines that a scorer
          prints of a wave whose rows are sealed
page      tables, sentences and JSON of all that; sections of README.md, docs/first-contact.md and
          docs/accuracy.md, which `python -m` writes
waves/    one file for each kind and wave; nothing in it is ever changed
"""
