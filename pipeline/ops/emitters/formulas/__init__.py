"""What the kernels compute, by family. Every function takes a `Formula` (the pen) and values, and gives a value.

Coefficients are minimax fits made in high precision and rounded for the machine, lowest power first. `f.level` says how
accurate the result has to be: half results need fewer terms than singles.
"""
