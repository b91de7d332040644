"""Number formats and arithmetic of MN-Core 2: a plain reference form, and a fast form that a test holds equal to it."""
