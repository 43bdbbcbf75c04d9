"""Holdfast's benchmarks: `python -m bench` lists them, `python -m bench cells` runs one.

Contenders run interleaved in rounds, each in its own process and a fresh database, on the
same durability. README.md beside this file says how fairness is kept and what is counted.
"""
