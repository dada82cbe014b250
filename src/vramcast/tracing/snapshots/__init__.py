"""Memory snapshots that people hold: read without running anything, replayed, explained."""
