"""The process itself.

interpreter  garbage collection, thread switching and memory arenas
sandbox      run a parser in a child process, with limits of CPU time and memory
"""
