"""Spending: limits per day, and the prices behind them.

budgets  reserves and settles usage against all limits
payers   Sans-IO: the people, API keys and users whose limits a request counts against
prices   prices of models
days     Sans-IO: days and spans of time
"""
