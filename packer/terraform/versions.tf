terraform {
  # Validations that look at several variables.
  required_version = ">= 1.9"
}
