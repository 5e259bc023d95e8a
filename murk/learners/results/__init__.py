"""What was learned, to hold, print, plot and pass on: of a log, of a run, or of a learner in process."""
