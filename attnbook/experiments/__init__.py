"""One file, one experiment; each returns `measure.Findings`, for a chapter, a test and the command line alike."""
