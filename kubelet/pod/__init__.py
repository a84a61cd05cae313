"""The machine of one pod on one node: its containers, and the parts that drive them."""
