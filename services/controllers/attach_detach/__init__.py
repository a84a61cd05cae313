"""Controller that attaches volumes to the nodes whose pods use them, and detaches them from other nodes."""
