variable "image" {
  description = "The image that Packer's qemu made, as it was uploaded."
  type        = string
}

variable "flavor" {
  type = string
}

variable "network_id" {
  type = string
}

variable "subnet_id" {
  type = string
}

variable "interface" {
  description = "The network interface inside the machine."
  type        = string
  default     = "ens3"
}

variable "addresses" {
  description = "The own addresses of the two nodes."
  type        = list(string)

  validation {
    condition     = length(var.addresses) == 2
    error_message = "addresses are two."
  }
}

variable "vip" {
  description = "The floating address with its prefix."
  type        = string
}

variable "api_servers" {
  type = list(string)
}

variable "ca_file" {
  description = "File with the CA of the API servers, in PEM form."
  type        = string
}
