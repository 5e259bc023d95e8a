"""IWP-SGD: what people release once, and what is learned from it."""
