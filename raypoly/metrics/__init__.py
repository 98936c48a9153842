"""What a policy is measured by, and where the numbers of each step go."""
