"""The pods of a node that KWOK Stages move (services/kwok/stages)."""
