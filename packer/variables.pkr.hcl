# What can be chosen; packer/README.md says more. Values: -var NAME=VALUE, or a file with -var-file.

variable "bundle" {
  type        = string
  default     = "../dist/pyconfd-appliance.tar"
  description = "What `make appliance` writes: wheelhouse, units and scripts. Relative to this folder."
}

variable "output" {
  type        = string
  default     = "../dist/image"
  description = "Folder for the manifest, and for the disk of qemu. Relative to the folder that packer is run in."
}

variable "max_connections" {
  type        = number
  default     = 100000
  description = "Clients at the same time, for which haproxy gets open files."

  validation {
    condition     = var.max_connections >= 1000 && var.max_connections <= 4000000
    error_message = "The value of max_connections must be from 1000 to 4000000."
  }
}

variable "access_log" {
  type        = string
  default     = "journal"
  description = "Where haproxy's access log goes: journal, or none."

  validation {
    condition     = contains(["journal", "none"], var.access_log)
    error_message = "The value of access_log must be journal or none."
  }
}

variable "journal_size" {
  type        = string
  default     = "1G"
  description = "What the journal may take of the disk."

  validation {
    condition     = var.journal_size != "" && regex_replace(var.journal_size, "^[1-9][0-9]*[KMGT]$", "") == ""
    error_message = "The value of journal_size must be a number with K, M, G or T, such as 1G."
  }
}

variable "generalize" {
  type        = string
  default     = "auto"
  description = "Whether machine id, host keys and logs are taken out: auto (not with the source null), always, never."

  validation {
    condition     = contains(["auto", "always", "never"], var.generalize)
    error_message = "The value of generalize must be auto, always or never."
  }
}

variable "image_name" {
  type        = string
  default     = "pyconfd-lb"
  description = "How the names of images begin."

  validation {
    condition     = var.image_name != "" && regex_replace(var.image_name, "^[A-Za-z0-9][A-Za-z0-9._-]{2,79}$", "") == ""
    error_message = "The value of image_name must be 3 to 80 letters, digits, dots, underscores and hyphens."
  }
}

# amazon-ebs

variable "region" {
  type    = string
  default = "eu-central-1"

  validation {
    condition     = var.region != "" && regex_replace(var.region, "^[a-z]{2}(-[a-z]+)+-[0-9]$", "") == ""
    error_message = "The value of region must be a region of AWS, such as eu-central-1."
  }
}

variable "instance_type" {
  type        = string
  default     = "t3.small"
  description = "On what the image is baked, not on what it will run."
}

variable "subnet_id" {
  type        = string
  default     = ""
  description = "Where it is baked; the default VPC's, where empty. It needs a way to Debian's archive."
}

variable "ami_users" {
  type        = list(string)
  default     = []
  description = "Accounts that may use the image, by their numbers."
}

variable "kms_key_id" {
  type        = string
  default     = ""
  description = "The key of the image's disk; AWS's own, where empty."
}

# qemu

variable "base_image" {
  type        = string
  default     = "https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2"
  description = "A Debian 12 disk with cloud-init; a path or a URL."
}

variable "base_checksum" {
  type        = string
  default     = "file:https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS"
  description = "Its checksum: sha512:..., file:URL, or none for a disk of your own making."
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "kvm; or tcg, ten times slower, where the machine has none."

  validation {
    condition     = contains(["kvm", "tcg", "hvf"], var.accelerator)
    error_message = "The value of accelerator must be kvm, tcg or hvf."
  }
}

variable "qemuargs" {
  type        = list(list(string))
  default     = []
  description = "More arguments of qemu, such as a kernel. A -drive takes the place of the disk itself."
}

# qemu and null: how Packer gets in

variable "ssh_username" {
  type        = string
  default     = "debian"
  description = "root, or somebody who may use sudo without a password; the user of Debian's cloud image."
}

variable "ssh_private_key_file" {
  type        = string
  default     = ""
  description = "The key whose public half the machine knows."
}

variable "ssh_host" {
  type        = string
  default     = "127.0.0.1"
  description = "null: the machine that becomes an appliance."
}

variable "ssh_port" {
  type    = number
  default = 22

  validation {
    condition     = var.ssh_port >= 1 && var.ssh_port <= 65535
    error_message = "The value of ssh_port must be from 1 to 65535."
  }
}

variable "seed" {
  type        = string
  default     = ""
  description = "qemu: a folder for cloud-init that gives the machine the public key, as packer/seed.sh makes it. Served by HTTP during the bake."
}
