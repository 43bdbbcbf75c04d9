"""Redis 7 or later, or Valkey, through redis-py: any number of machines on one store.

See keys.py for what a store keeps under its prefix, and docs/design/redis.md for why.
"""
