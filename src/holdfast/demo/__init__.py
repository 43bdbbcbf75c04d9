"""The demo: processes share an inventory, one of them is killed, and the sums are right.

    python -m holdfast.demo

Read `orders.py` first: it is the part an application would have too. `worker.py` is the
process that takes orders, `crew.py` and `show.py` start, kill and replace such processes,
`books.py` checks the sums in the store, and `screen.py` draws.
"""
