"""What happens when something hangs, dies, pauses or is told to stop."""
