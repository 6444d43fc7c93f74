# One pyconfd.toml for each node, inside cloud-init user data. A value in JSON is one in TOML, as long as it is no object.
locals {
  directory = "/etc/pyconfd"

  top = var.pyconfd_version == "" ? "" : "settings_version = ${jsonencode(var.pyconfd_version)}\n"

  kubernetes = {
    api_servers = jsonencode(var.kubernetes.api_servers)
    ssl_ca      = jsonencode("${local.directory}/ca.pem")
    cluster     = jsonencode(var.kubernetes.cluster)
    token_file  = jsonencode(var.credentials.token_file)
    ssl_cert    = jsonencode(var.credentials.certificate_file)
    ssl_key     = jsonencode(var.credentials.key_file)
  }

  presets = {
    use            = jsonencode(var.presets)
    backend_target = jsonencode(var.backend_target)
  }

  templates = { dir = jsonencode(length(var.fragments) > 0 ? "${local.directory}/fragments" : "") }

  vip = { for node in var.nodes : node.name => var.vip == null ? {} : {
    interface         = jsonencode(var.vip.interface)
    virtual_router_id = jsonencode(var.vip.virtual_router_id)
    addresses         = jsonencode(var.vip.addresses)
    ports             = jsonencode(var.vip.ports)
    profile           = jsonencode(var.profile)
    node              = jsonencode(node.name)
  } }

  dns = { for node in var.nodes : node.name => var.dns == null ? {} : {
    names           = jsonencode(var.dns.names)
    owner           = jsonencode(var.dns.owner)
    node            = jsonencode(node.name)
    zone_id         = jsonencode(var.dns.zone_id)
    private         = jsonencode(var.dns.private)
    mode            = jsonencode(var.dns.mode)
    vip             = jsonencode(var.dns.vip)
    address_source  = jsonencode(var.dns.address_source)
    address         = jsonencode(var.dns.address_source == "fixed" ? node.dns_address : "")
    address6        = jsonencode(var.dns.address_source == "fixed" ? node.dns_address6 : "")
    interface       = jsonencode(var.dns.interface)
    frontends       = jsonencode(var.dns.frontends)
    ttl_s           = jsonencode(var.dns.ttl_s)
    health_check_id = jsonencode(node.health_check_id)
    reaper          = jsonencode(var.dns.reaper)
    reap_port       = jsonencode(var.dns.reap_port)
    nodes           = jsonencode(length(var.nodes))
  } }

  vip_nodes = var.vip == null ? "" : join("", [for node in var.nodes :
    "\n[[vip.nodes]]\nname = ${jsonencode(node.name)}\naddresses = ${jsonencode(node.addresses)}\n"
  ])

  # What is empty is left to pyconfd's default.
  settings = { for node in var.nodes : node.name => join("", [
    "# Written by cloud-init from Terraform. Changed by hand, it is read again by: systemctl reload pyconfd\n",
    local.top,
    join("", [for section, values in {
      kubernetes = local.kubernetes
      presets    = local.presets
      templates  = local.templates
      vip        = local.vip[node.name]
      dns        = local.dns[node.name]
      } :
      length([for value in values : value if value != "\"\""]) == 0 ? "" :
      "\n[${section}]\n${join("", [for key, value in values : "${key} = ${value}\n" if value != "\"\""])}${section == "vip" ? local.vip_nodes : ""}"
    ]),
    var.extra_settings == "" ? "" : "\n${trimspace(var.extra_settings)}\n",
  ]) }

  # The credential's path is another one in each unit, so it comes as a variable there and not in the file. By its name,
  # for which systemd looks in /etc/credstore.encrypted: a path to a file that is not there yet would fail the unit.
  drop_in = var.credentials.encrypted_credential == "" ? [] : [for unit in ["pyconfd", "pyconfd-preflight"] : {
    path        = "/etc/systemd/system/${unit}.service.d/credential.conf"
    content     = "[Service]\nLoadCredentialEncrypted=token:${basename(var.credentials.encrypted_credential)}\nEnvironment=PYCONFD_KUBERNETES_TOKEN_FILE=%d/token\n"
    permissions = "0644"
    owner       = "root:root"
  }]

  files = { for node in var.nodes : node.name => concat(
    [
      { path = "${local.directory}/ca.pem", content = "${trimspace(var.kubernetes.ca_pem)}\n", permissions = "0644", owner = "root:root" },
    ],
    [for name, text in var.fragments : { path = "${local.directory}/fragments/${name}", content = text, permissions = "0640", owner = "root:pyconfd" }],
    local.drop_in,
    [for file in var.extra_files : { path = file.path, content = file.content, permissions = file.permissions, owner = file.owner }],
    # The last one, since the units wait for it.
    [{ path = "${local.directory}/pyconfd.toml", content = local.settings[node.name], permissions = "0644", owner = "root:root" }],
  ) }

  user_data = { for node in var.nodes : node.name => join("", ["#cloud-config\n", yamlencode(merge(
    {
      hostname          = node.name
      preserve_hostname = false
      write_files       = local.files[node.name]
    },
    # A unit that was loaded before its drop-in was written does not know it.
    length(local.drop_in) + length(var.extra_commands) == 0 ? {} : {
      runcmd = concat(
        length(local.drop_in) == 0 ? [] : [["systemctl", "daemon-reload"], ["systemctl", "--no-block", "restart", "pyconfd.service"]],
        var.extra_commands,
      )
    },
  ))]) }
}
