"""HTTP to model services: connections, sockets, bodies and event streams."""
