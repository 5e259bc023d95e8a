"""Solutions of the equations that scores give."""
