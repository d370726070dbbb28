"""Small values that every package may use: clock, ids, secrets, sizes, findings, reasons."""
