"""Model providers; each is an island that shares only `contract` and `sse`."""
