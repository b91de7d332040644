"""Exit codes of `mlsdk`, for scripts.

0    done, or nothing to do
1    a phase failed, or the input is not what it must be
2    the command line is wrong
3    the store cannot be used: full, read-only, busy, damaged, not a store
4    `store fsck` found something wrong, or `bisect` a node that differs
5    `build --dry-run` found something to build
70   a bug of Open MLSDK
130  interrupted
"""

DONE = 0
FAILED = 1
USAGE = 2
STORE = 3
FOUND = 4
PENDING = 5
BUG = 70
INTERRUPTED = 130
