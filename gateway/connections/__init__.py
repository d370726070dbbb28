"""Platform connections.

directory      all adapters in use, and the features they offer
supervision    keeps one adapter connected and tracks the state
adapter_store  the parts of the store an adapter may use
"""
