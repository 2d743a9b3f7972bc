"""The results of four published works, by their model and by ours: `foretell reproduce`.

records.py        a figure's tables and findings, and a work
works.py          the works by name; what the command runs
nersc_2024.py     arXiv 2410.00273: parallel plans of a GPT and a ViT on nine systems
  nersc_ours.py     the same systems and searches in our model
  nersc_maps.py     days over two properties of a chip at a time
  nersc_layers.py   one layer, op by op, and fixed configurations
  nersc_collectives.py its validation of collectives: NCCL on Perlmutter
  nersc_ladder.py   its days from its model to ours, one mechanism of ours at a time
  nersc_findings.py what the study states, and whether it survives in our model
imec_2025.py      arXiv 2507.02456: performance and cost of training and inference
  imec_designs.py   topologies, chiplets, memory and process nodes
  imec_validation.py published times of training and inference
scaling_2024.py   SIGMETRICS 2024: data and model parallelism with much and little bandwidth
  scaling_runs.py   GenSLM's published runs beside our predictions
anthe_2023.py     arXiv 2305.10991: weights, operations, small trainings
ladder.py         from a published number to ours, and what may be stated of the difference
"""
