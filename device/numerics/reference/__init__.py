"""The arithmetic in its plain form: integers and fractions, one element at a time, in the order in which the text says it."""
