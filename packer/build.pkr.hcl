# One way to make the appliance, whatever the machine is. The scripts do the work; each runs alone too.

locals {
  stamp = formatdate("YYYYMMDD-hhmmss", timestamp())
  tags = {
    Name    = var.image_name
    builder = "pyconfd packer"
  }
  # As root, directly or by sudo; never with a terminal that could ask.
  execute = "$(test $(id -u) = 0 || echo sudo -n) env {{ .Vars }} sh '{{ .Path }}'"
}

build {
  sources = ["source.amazon-ebs.lb", "source.qemu.lb", "source.null.machine"]

  provisioner "file" {
    source      = var.bundle
    destination = "/var/tmp/pyconfd-appliance.tar"
  }

  provisioner "shell" {
    execute_command = local.execute
    inline = [
      # First boot of a cloud: it may still write the sources of apt.
      "if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null || true; fi",
      "rm -rf /var/tmp/pyconfd-appliance && mkdir -m 700 /var/tmp/pyconfd-appliance",
      "tar -C /var/tmp/pyconfd-appliance --no-same-owner -xf /var/tmp/pyconfd-appliance.tar",
    ]
  }

  provisioner "shell" {
    execute_command = local.execute
    environment_vars = [
      "PYCONFD_SOURCE=/var/tmp/pyconfd-appliance",
      "PYCONFD_MAX_CONNECTIONS=${var.max_connections}",
      "PYCONFD_ACCESS_LOG=${var.access_log}",
      "PYCONFD_JOURNAL_SIZE=${var.journal_size}",
    ]
    scripts = [
      "${path.root}/scripts/10-packages.sh",
      "${path.root}/scripts/20-pyconfd.sh",
      "${path.root}/scripts/30-units.sh",
      "${path.root}/scripts/40-system.sh",
      "${path.root}/scripts/80-manifest.sh",
    ]
  }

  provisioner "file" {
    direction   = "download"
    source      = "/usr/share/pyconfd/manifest.json"
    destination = "${var.output}/manifest.json"
  }

  provisioner "shell" {
    execute_command = local.execute
    environment_vars = [
      "PYCONFD_SOURCE=/var/tmp/pyconfd-appliance",
      "PYCONFD_GENERALIZE=${var.generalize}",
    ]
    scripts = ["${path.root}/scripts/90-generalize.sh"]
  }

  post-processor "manifest" {
    output     = "${var.output}/packer.json"
    strip_path = true
  }
}
