"""The NATS engine: records and cells on one JetStream stream.

The setting `bucket` (here: holdfast) names the stream `holdfast_state`, which keeps the newest
message of each subject, as a key-value bucket of NATS does:

    holdfast.records.<namespace>.<key>    a record, or what is left of a deleted one
    holdfast.cells.<namespace>.<name>     a cell, deleted ones too: their counter goes on
    holdfast.clock                        by how much tests have moved the store's clock

Each message is written under the condition that nobody wrote to its subject since it was read
(Nats-Expected-Last-Subject-Sequence), so a write is a read, a decision and a publish, again when
somebody came between. The stream is the log: a change's place in it is its sequence number.
"""
