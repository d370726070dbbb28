"""Tools the model may call, and the gate that every call passes."""
