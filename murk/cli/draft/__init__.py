"""What ``murk init`` writes: a first task file, with comments that say where each line comes from."""
