"""What `performance.py` and `gpu.py` are made of: one file for each group of rows, and what these share."""
