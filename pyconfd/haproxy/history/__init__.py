"""What was applied: generations, the inputs that they were made of, the pin."""
