"""Translation models trained for real: text in two languages, byte pairs, training, decoding.

    settings      what a run is asked, and small ones of the catalogue's models
    text          line-aligned files, byte pairs, and the folder that a run is kept in
    synthetic     text in two languages that never were
    keras_weights the authors' weights
    train, ranks  training, by one process or several
    decode        translating lines, greedy or by beams; BLEU, chrF and lines that are exactly right

torch and tokenizers are imported by the functions that need them.
"""
