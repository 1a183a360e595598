"""Certificates of proven overlaps, and their independent checker."""
