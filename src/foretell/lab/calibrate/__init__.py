"""Coefficients from measurements: rows of tables and of this machine -> fits -> files of the catalogue.

measure/                         times kernels, copies and collectives on the machine at hand
measured_rows, measured_facts    its lines as rows of kernel families; what these tell of the chip and links
fit, fit_report                  a chip's surfaces from such a file; as text, JSON and the file of the chip
runs                             a system's factors from measured runs

surfaces                         the one fit of a kernel family, judged on sites left out
kernel_files, kernel_rows, kernel_fit    published tables of kernels: columns, rows of every kind, their fits
collectives_rows, collectives_sites      published collectives: rows, and where they ran
collectives, collectives_start           the library's coefficients: their fit, and where it starts
dispatch_rows, dispatch_fit              exchanges of experts: rows; fits, and what other libraries tell
serving_rows, serving_arguments, serving_cases    serving results: rows, arguments of `serve`, answers beside
serving_fit                      engine profiles: fits to rows, and profiles that owe nothing to a row
cells                            cells of any table as numbers
"""
