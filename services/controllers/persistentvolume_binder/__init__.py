"""PersistentVolumes and their claims find each other."""
