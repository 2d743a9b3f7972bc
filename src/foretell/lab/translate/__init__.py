"""Translation models trained for real: text in two languages, byte pairs, training, decoding.

    settings.py, folder.py    what a run is asked, and where it is kept
    text.py, synthetic.py     line-aligned files, and text in two languages that never were
    models.py, keras_weights.py    small ones of the catalogue's models, and the authors' weights
    train.py, ranks.py        training, by one process or several
    run.py, decode.py         translating lines: greedy or by beams
    evaluate.py, scores.py    BLEU, chrF and lines that are exactly right

torch and tokenizers are imported by the functions that need them.
"""
