"""The public API under asyncio, written by hand. `holdfast.sync` is generated from it."""
