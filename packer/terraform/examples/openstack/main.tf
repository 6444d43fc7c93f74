# Two load balancers with a floating address in a network where VRRP works: OpenStack here; for libvirt the last resource
# becomes a libvirt_cloudinit_disk with the same user data (libvirt.tf.example).
#
# Not validated without a network and the provider: everything in this folder but its formatting, and the user data,
# which is the module's. Names and types of all arguments were compared once with a schema of the provider (3).

terraform {
  required_version = ">= 1.9"
  required_providers {
    openstack = {
      source  = "terraform-provider-openstack/openstack"
      version = ">= 2.0, < 4.0"
    }
  }
}

locals {
  nodes = { lb1 = var.addresses[0], lb2 = var.addresses[1] }
  vip   = split("/", var.vip)[0]
}

module "pyconfd" {
  source = "../.."

  nodes      = [for name, address in local.nodes : { name = name, addresses = [address] }]
  kubernetes = { api_servers = var.api_servers, ca_pem = file(var.ca_file) }
  profile    = "cloud"
  vip        = { interface = var.interface, virtual_router_id = 51, addresses = [var.vip] }

  # Secrets by reference. Either a file that the operator places, and replaces to rotate it (it is read again):
  #   install -m 640 -o root -g pyconfd token /etc/pyconfd/token
  # or, as here, a credential that only this machine can read, sealed on it once:
  #   install -d -m 700 /etc/credstore.encrypted
  #   systemd-creds encrypt --name=token token.txt /etc/credstore.encrypted/pyconfd-token
  #   systemctl restart pyconfd
  # To rotate it, do the same with the new one; a restart of pyconfd changes nothing for traffic.
  credentials = { encrypted_credential = "/etc/credstore.encrypted/pyconfd-token" }
}

resource "openstack_networking_secgroup_v2" "node" {
  name = "pyconfd"
}

resource "openstack_networking_secgroup_rule_v2" "clients" {
  for_each = toset(["80", "443"])

  security_group_id = openstack_networking_secgroup_v2.node.id
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = tonumber(each.key)
  port_range_max    = tonumber(each.key)
}

resource "openstack_networking_secgroup_rule_v2" "vrrp" {
  for_each = toset(module.pyconfd.peers)

  security_group_id = openstack_networking_secgroup_v2.node.id
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "112"
  remote_ip_prefix  = each.key
}

resource "openstack_networking_port_v2" "node" {
  for_each = local.nodes

  name               = each.key
  network_id         = var.network_id
  security_group_ids = [openstack_networking_secgroup_v2.node.id]

  fixed_ip {
    subnet_id  = var.subnet_id
    ip_address = each.value
  }

  # Else the network drops what the holder sends from the floating address.
  allowed_address_pairs {
    ip_address = local.vip
  }
}

resource "openstack_compute_instance_v2" "node" {
  for_each = local.nodes

  name        = each.key
  image_name  = var.image
  flavor_name = var.flavor
  user_data   = module.pyconfd.user_data[each.key]

  network {
    port = openstack_networking_port_v2.node[each.key].id
  }
}
