"""Runtime of every process: entry, configuration, certificates, faults; real or simulated."""
