"""Pod garbage collector: deletes pods that no other component deletes."""
