"""The front ends: one file a framework."""
