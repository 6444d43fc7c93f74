source "amazon-ebs" "lb" {
  region          = var.region
  instance_type   = var.instance_type
  subnet_id       = var.subnet_id
  ami_name        = "${var.image_name}-${local.stamp}"
  ami_description = "pyconfd load balancer on Debian 12"
  ami_users       = var.ami_users
  # Debian's own image and nobody else's of the same name: 136693071363 is Debian's account.
  source_ami_filter {
    owners      = ["136693071363"]
    most_recent = true
    filters = {
      name                = "debian-12-amd64-*"
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
  }
  ssh_username  = "admin"
  ssh_timeout   = "10m"
  encrypt_boot  = true
  kms_key_id    = var.kms_key_id
  ena_support   = true
  sriov_support = true
  tags          = local.tags
  snapshot_tags = local.tags
}

source "qemu" "lb" {
  iso_url      = var.base_image
  iso_checksum = var.base_checksum
  disk_image   = true
  # A disk of its own, without a chain to the base image.
  use_backing_file = false
  skip_resize_disk = true
  disk_compression = true
  # Nobody needs the disk of a bake that was cut short; all of it is on it when qemu has ended.
  disk_cache           = "unsafe"
  format               = "qcow2"
  disk_interface       = "virtio"
  net_device           = "virtio-net"
  memory               = 1024
  headless             = true
  accelerator          = var.accelerator
  output_directory     = "${var.output}/qemu"
  vm_name              = "${var.image_name}.qcow2"
  boot_wait            = "1s"
  ssh_username         = var.ssh_username
  ssh_private_key_file = var.ssh_private_key_file
  # Without a key file the agent of whoever runs this is asked.
  ssh_agent_auth   = var.ssh_private_key_file == ""
  ssh_timeout      = "10m"
  shutdown_command = "$(test $(id -u) = 0 || echo sudo) systemctl poweroff"
  # Packer serves the folder, and the machine is told where. Not as a disk: a "-drive" here takes the place of Packer's own.
  http_directory = var.seed
  qemuargs       = concat(var.seed == "" ? [] : [["-smbios", "type=1,serial=ds=nocloud-net;s=http://{{ .HTTPIP }}:{{ .HTTPPort }}/"]], var.qemuargs)
}

# A machine that is there: a host of your own, or a container in tests. It is not stopped, and nothing is copied from it.
source "null" "machine" {
  ssh_host             = var.ssh_host
  ssh_port             = var.ssh_port
  ssh_username         = var.ssh_username
  ssh_private_key_file = var.ssh_private_key_file
  # Without a key file the agent of whoever runs this is asked.
  ssh_agent_auth = var.ssh_private_key_file == ""
  ssh_timeout    = "2m"
}
