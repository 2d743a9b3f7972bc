"""Coefficients from measurements: rows of tables and of this machine -> fits -> files of the catalogue.

measure/             times kernels, copies and collectives on the machine at hand
measured_rows, measured_facts    its lines as rows of kernel families, and what they tell of the chip
fit, links_fit       a chip's surfaces and links from such a file; fit_report, fit_file: text and file
runs                 a system's factors from measured runs

surfaces             the one fit of a kernel family, judged on sites left out
kernel_files, kernel_rows, kernel_fit    published tables of kernels: columns, rows of every kind, their fits
collectives_rows, collectives_sites      published collectives: rows, and where they ran
collectives, collectives_start, collectives_files    the library's coefficients: fit, start, files
dispatch_rows, dispatch_fit, dispatch_kin    exchanges of experts: rows, fit, what other libraries tell
serving_rows, serving_arguments, serving_cases    serving results: rows, arguments of `serve`, answers beside
serving_fit, serving_left_out    engine profiles, and the same without one model
cells                cells of any table as numbers
"""
