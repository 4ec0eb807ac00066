"""From estimates and measurements of single steps to a whole training: plain data in and out."""
