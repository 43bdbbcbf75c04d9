# GENERATED from holdfast/aio/__init__.py by tools/generate_sync.py: change that file instead.
"""The public API under blocking code, written by hand. `holdfast.sync` is generated from it."""
