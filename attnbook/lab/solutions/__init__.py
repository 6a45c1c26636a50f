"""The solutions of the lab, written as a reader would write them; the exercises are these files with holes."""
