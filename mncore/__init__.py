"""mncore: a name that older programs import for its side effects. It has none here; everything is in `mlsdk`."""
