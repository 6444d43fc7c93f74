"""One rendering for many balancers: a producer puts it into etcd v3, consumers take it from there.

The producer that holds the lease (``campaign``) packs a rendering (``publication``) and writes it (``producer``):
chunks first, then the pointer in one transaction. Consumers watch the pointer and verify what it names (``source``),
and adapt it to their own paths and certificates (``local``). ``client`` is the connection of both.
"""
