"""The pages: each a function from a View to a dict, shown by a template of the same name or as `.json`."""
