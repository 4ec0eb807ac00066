"""The roofline: how near each phase of a training step comes to what its machine reaches at best."""
