"""The results of four published works, by their model and by ours: `foretell reproduce`.

records.py        a figure's tables and findings, and a work
works.py          the works by name; what the command runs
nersc_2024.py     arXiv 2410.00273: parallel plans of a GPT and a ViT on nine systems
  nersc_ours.py     the same systems and searches in our model
  nersc_maps.py     days over two properties of a chip at a time
  nersc_layers.py   one layer, op by op, and fixed configurations
  nersc_findings.py what the study states, and whether it survives in our model
"""
