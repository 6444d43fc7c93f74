"""The tests of gateway-api-bench, and figures like them, on a real control plane: ``make bench-gateway``."""
