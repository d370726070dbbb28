"""Models: the contract with providers, and the facts and limits of each model.

contract          request and chunk types, and the `Provider` protocol
known_models      context windows, output limits and traits by model name
learned           facts learned from a service's responses; `breaker` is its circuit breaker
fallback          order of targets within one turn
usage             token counts, prices and costs
"""
