"""Budgets, prices and the days they are counted in."""
