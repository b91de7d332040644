"""The memories of the chip: address-major arrays with the PE innermost, and DRAM as lazily filled pages."""
