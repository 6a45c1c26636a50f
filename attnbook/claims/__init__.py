"""Claims: numbers and statements in prose, bound to measurements and judged at every build, in any language."""
