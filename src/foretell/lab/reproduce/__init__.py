"""The results of four published works, by their model and by ours: `foretell reproduce`.

A work is a module and a file of text beside it (.toml): its figures, and what it states.

records            a figure's tables and findings, works by name, what the command runs, and ladders: from a
                   published number to ours, and what may be stated of the difference
nersc_2024         arXiv 2410.00273: parallel plans of a GPT and a ViT on nine systems
  nersc_ours       the same systems and searches in our model
  nersc_maps       days over two properties of a chip at a time
  nersc_layers     one layer, op by op, fixed configurations, real runs, and NCCL on Perlmutter
  nersc_ladder     its days from its model to ours, one mechanism of ours at a time
  nersc_findings   what the study states, and whether it survives in our model
imec_2025          arXiv 2507.02456: performance and cost of training and inference; published times of both
  imec_designs     topologies, chiplets, memory and process nodes
scaling_2024       SIGMETRICS 2024: data and model parallelism with much and little bandwidth
anthe_2023         arXiv 2305.10991: weights, operations, small trainings
"""
