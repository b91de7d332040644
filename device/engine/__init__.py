"""The emulated machine: statements are decoded once into calls of numpy and numba kernels, and these are run in order."""
