"""The phases as Luigi tasks, and what a build is made of."""

import warnings

# Luigi says at its import that a default of its own will change. It does not concern a program that was told to make errors of
# warnings, and would end there.
warnings.filterwarnings("ignore", r"\s*Autoloading range tasks", DeprecationWarning)
