"""A real federation over Flower: one app for every method, with the simulation's numbers.

The server's process trains nothing and reads no client's image; each node has its own clients' images and their models
between rounds. What travels is the simulation's `Request` and `Reply`, as bytes of `fedlib_flower.wire`. So the same
specification gives the same rounds.csv and clients.csv, byte for byte, on machines of one type and torch version.

    shares    what each side has: `deal` cuts a data set into a server's folder and one for each node
    node      a node's part: answers requests, keeps its clients' states
    resident  a node's process that stays, so that not every message loads torch
    server    the server's part: an exchange over nodes that may be slow, go away and come back
    accepts   what it accepts of each method's clients
    spoilt    whose upload it leaves out, since it spoils the round
    here      nodes in this process, for trying and for tests
    app       the Flower app that connects the two (needs flwr)
    loopback  a SuperLink and SuperNodes on this machine, with TLS and node authentication
"""
