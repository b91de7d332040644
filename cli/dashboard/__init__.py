"""The Codegen Dashboard: a local web page for one codegen_dir, or for all builds of a store.

It reads what compiles wrote and runs no phase. Each page is a function that returns a dict, shown as HTML or as `.json`.
Nothing here imports torch, and nothing is written beside a temporary index that goes with the process.
"""
