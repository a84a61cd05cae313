"""What a node has left, and whom it evicts when that is too little."""
