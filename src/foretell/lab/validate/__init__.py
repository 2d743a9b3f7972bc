"""Measured tables beside our predictions: each row asked as a user would ask it, and scored.

scores               what every table gives: predictions, reasons, commands, errors by groups

training             training runs; of a row: training_rows (cells, and its plan's words),
                     training_question (model, system and the whole question)
serving              serving results (rows are calibrate's)
post_training, post_training_cells, post_training_rows    RL and fine-tuning steps
memory               whether runs fit, with those that ran out of memory
hardware, cost       kernels, NCCL, exchanges of experts; dies and packages
famous               famous runs by short words
anchors              rows predicted from other rows of their source

held_out, held_out_scores    errors with a source, a framework or a chip held out
contacts             first contacts as the error models are fitted to them, and what each kind has
error_fit, error_likelihood, memory_errors    the models of error behind intervals
ablation             what every value of software earns

published, own_runs    what pages print of rows in the repository
pages, page_text     what they print of rows that are not; their tables, and answers as last rendered
"""
