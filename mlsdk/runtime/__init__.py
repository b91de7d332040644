"""The runtime: applications loaded into a board's DRAM, fed, run and read."""
