"""Every implementation × option × dtype × shape × heads × memory layout, against the truth: in pairs, or all of it."""
