"""Spending: limits per day, and the prices behind them.

budgets  reserves and settles usage against all limits
prices   prices of models
days     Sans-IO: days and spans of time
"""
