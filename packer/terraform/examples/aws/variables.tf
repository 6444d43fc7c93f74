variable "region" {
  type    = string
  default = "eu-central-1"
}

variable "ami" {
  description = "The image that Packer made."
  type        = string
}

variable "instance_type" {
  type    = string
  default = "c7i.large"
}

variable "vpc_id" {
  type = string
}

variable "subnet_ids" {
  description = "Subnets for the nodes, in turn: one for each zone of availability."
  type        = list(string)
}

variable "names" {
  type    = list(string)
  default = ["lb1", "lb2"]
}

variable "private_ips" {
  description = "The nodes' own addresses, in the order of names, each in its subnet."
  type        = list(string)

  validation {
    condition     = length(var.private_ips) == length(var.names)
    error_message = "private_ips has one address for each of names."
  }
}

variable "api_servers" {
  type = list(string)
}

variable "ca_file" {
  description = "File with the CA of the API servers, in PEM form."
  type        = string
}

variable "cluster" {
  type    = string
  default = ""
}

variable "presets" {
  type    = list(string)
  default = ["domains"]
}

variable "fragments" {
  description = "Directory with *.conf and *.tmpl; without any there, those of the image."
  type        = string
  default     = "fragments"
}

variable "zone" {
  description = "The hosted zone that is made, such as example.com."
  type        = string
}

variable "dns_name" {
  description = "The name that follows the nodes, in lower case, such as lb.example.com."
  type        = string
}

variable "certificate_secret_arns" {
  description = "Secrets with certificate and key in PEM form, by the name of the file below /etc/haproxy/certs."
  type        = map(string)
  default     = {}
}
