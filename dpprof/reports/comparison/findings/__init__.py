"""What a comparison finds: data first, then a sentence that says it. One file for each kind of finding."""
