"""Which strategy a program uses. Standard library only: all of this runs inside sandbox children."""
