"""Measured tables beside our predictions: each row asked as a user would ask it, and scored.

scores               what every table gives: predictions, reasons, errors by groups

training             training runs; of a row: training_rows (cells), training_model, training_system,
                     training_plan (their words), training_question (the whole question)
serving              serving results (rows are calibrate's)
post_training, post_training_cells, post_training_rows    RL and fine-tuning steps
memory, memory_rows  whether runs fit, with those that ran out of memory
kernels, collectives, dispatch, cost    kernels, NCCL, exchanges of experts, dies and packages
famous               famous runs by short words
anchors, serving_anchors, post_training_anchors    rows predicted from other rows of their source

held_out, held_out_scores, residuals    errors with a source, a framework or a chip held out
contacts, error_kinds, memory_errors    first contacts, and what each kind of error model has
error_fit, error_likelihood, error_held_out    the models of error behind intervals
ablation             what every value of software earns

published, published_serving, own_runs, own_transformers    what pages print of rows in the repository
pages, stored_steps  what they print of rows that are not, and answers as last rendered
"""
