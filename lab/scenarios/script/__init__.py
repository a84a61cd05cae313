"""The scenario language: what a line may say, read and checked, and what each verb does."""
