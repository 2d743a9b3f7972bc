"""Published runs beside our numbers for them."""
