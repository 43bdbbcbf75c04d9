"""SQLite through apsw: the embedded default, meant for production.

    holdfast_cell_versions   every version of every cell; its rowid is the commit id
    holdfast_branches        branches other than `main`, which is id 0 everywhere
    holdfast_merges          the last merge of two branches, and one under way
    holdfast_cuts            a view: commits at which a branch is looked at from elsewhere
    holdfast_store_state     one row: the clock's offset, the floor of commit ids
    holdfast_migrations      which migrations the file has

One writing connection, any number of reading ones, and a thread that moves the
write-ahead log into the file. See docs/design/sqlite.md.
"""
