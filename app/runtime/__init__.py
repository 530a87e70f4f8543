"""The process: its interpreter settings, its child processes and its traces.

interpreter  garbage collection, thread switching, memory arenas and free memory
sandbox      run a parser in a child process, with limits on CPU time and memory
tracing      OpenTelemetry spans
"""
