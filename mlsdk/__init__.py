"""Open MLSDK: an open, inspectable MLSDK for MN-Core 2 (unofficial)."""
