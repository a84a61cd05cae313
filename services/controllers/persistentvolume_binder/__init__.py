"""Volume controller: binds PersistentVolumes and claims."""
