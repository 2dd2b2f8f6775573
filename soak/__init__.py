"""A long run of a whole platform at half of its capacity: `make soak`.

A load that never changes runs while memory, open files, connections, sizes of tables and indexes, streams and
disk are sampled. After the warm-up, every series has to be flat. The product imports nothing from here.
"""
