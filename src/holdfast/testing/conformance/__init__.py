"""One suite for every backend, blocking and async."""
