"""Helpers for language models: attention masks, forms of the key/value cache, a Llama in stages."""
