"""Helpers that may change from version to version."""
