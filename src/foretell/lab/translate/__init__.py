"""Translation models trained for real: text in two languages, byte pairs, training, decoding.

torch and tokenizers are imported by the functions that need them. `models` makes small ones of the
catalogue's models, `text` reads line-aligned files, `train` trains and `run` translates; `synthetic`
makes text in two languages that never were.
"""
