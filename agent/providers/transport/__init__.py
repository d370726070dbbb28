"""HTTP to model services: connections, sockets, bodies and event streams.

http_client, proxies   the HTTP client of the SDKs, and the proxies of the environment
sockets, reach         the network backend under that client, and how it connects to a host
connections            client pools, API keys, timeouts and the mapping of connection errors
chunked                a decoder for chunked bodies that are read past the HTTP client
body, sse              readers for response bodies and server-sent events
"""
