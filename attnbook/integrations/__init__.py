"""attnbook inside other libraries: one module a library. None is loaded, nor needed, before it is imported by name."""
