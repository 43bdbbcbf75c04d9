"""Holdfast underneath libraries that others wrote; each is an extra of its own."""
