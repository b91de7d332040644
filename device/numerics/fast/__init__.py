"""The fast form of the arithmetic: small numba kernels over rows of 4096 PEs, held equal to the reference form by tests.

Every kernel takes (memory, row numbers) pairs, so that strided, flat, broadcast and loop-extended operands are one code.
Memories are uint32 arrays [row][PE]; a row is one word of every PE. A row of results is computed into a buffer of its own
and then copied, so that a destination may be one of the sources (and LLVM can vectorise).
"""
