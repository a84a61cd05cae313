"""What commands share that read and write files of other tools."""
