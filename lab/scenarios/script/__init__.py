"""The scenario language: the syntax of its lines, checked when they are read, and the action of each verb."""
