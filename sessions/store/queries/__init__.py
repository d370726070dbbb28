"""The reading half of the store: one module per kind of record, and `together` for joins.

Every query uses an index, and so takes as long with ten thousand sessions as with ten; only
listings that a person asks for may take longer. Everything runs in the reader threads. `rows` turns
rows into records; `census`, `costs` and `budgets` sum up; `values` reads small values.
"""
