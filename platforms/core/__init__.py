"""What all platforms share: the contract, its errors, the reading and cutting of Markdown, the registry."""
