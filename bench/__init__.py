"""Measurements. `python -m bench` runs all, `python -m bench NAME ..` some; results go to bench/results/NAME.json.

A module here has `measure(note)`, which calls `note(name, value, unit, reach, bound)` for each figure: `reach` is the
target, `bound` what physics or a peer measured in the same run allows.
"""
