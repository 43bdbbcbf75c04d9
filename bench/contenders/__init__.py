"""The programs that are compared. Each module has a class `Program` of the same shape.

    Program(where, work, options, tally)    where: a path, or the URL of a database on a server
    colour                                  "blocking" or "async"
    open()                                  connects and gives each cell or record its first value
    caller(number)                          the function that does one numbered operation
    verify(done)                            checks that every write arrived; may return notes
    close()

In an async program these are coroutine functions, except for `caller`. `tally` is None in the
timed run. A program tests nothing and decides nothing: it is the shortest honest way to do
the work with that library.
"""
