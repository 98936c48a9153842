"""What of a program its result depends on, in one spelling."""
