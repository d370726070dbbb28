"""What all platforms share: the contract, its errors, Markdown helpers and the registry."""
