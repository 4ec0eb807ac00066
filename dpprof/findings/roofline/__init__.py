"""The roofline: how near each phase of a training step comes to the best that its machine reaches."""
