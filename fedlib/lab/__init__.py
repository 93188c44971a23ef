"""Runs as records: specified, computed once, stored, read again."""
