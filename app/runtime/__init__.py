"""The process: its interpreter settings and its child processes.

interpreter  garbage collection, thread switching and memory arenas
sandbox      run a parser in a child process, with limits on CPU time and memory
"""
