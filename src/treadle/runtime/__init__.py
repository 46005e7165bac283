"""Runs lowered programs: the adapter to PJRT, executables, the cache of compiled programs, devices, host memory."""
