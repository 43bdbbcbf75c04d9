"""PostgreSQL through psycopg 3: any number of processes and machines on one store.

In the schema `holdfast` (or `?schema=`):

    cells           the newest version of each cell: the row that writers lock
    cell_versions   every version, by commit id
    branches        branches other than `main`, which is id 0 everywhere
    merges          the last merge of two branches, and one under way
    cuts            a view: commits at which a branch is looked at from elsewhere
    store_state     one row: the clock's offset, which clock_offset_us() returns too
    commit_ids      the sequence that every write draws from
    migrations      which migrations the database has
    write_cell()    one write: the rule, in one round trip
    write_cells()   a batch of them, in key order
    trim_cells()    retention
    fork_branch() … what changes branches
    commit_session()  what a session remembered, compared; and its writes

See docs/design/postgres.md.
"""
