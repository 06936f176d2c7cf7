"""Runs the real code of several processes in many orders of their file operations."""
