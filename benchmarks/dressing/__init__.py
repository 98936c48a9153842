"""Labels of dressed programs, and of honest pairs."""
