"""What a sketch promises: the analyses of its guarantee, in figures that are upper bounds."""
