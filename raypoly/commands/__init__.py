"""The commands of `raypoly`, a function each. What a command does is imported when it runs."""
