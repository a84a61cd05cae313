"""The pods of a node that KWOK Stages drive (services/kwok/stages)."""
