# Two load balancers in AWS, from the image that `make image` or Packer's amazon-ebs made. Names do the fail-over here:
# each node writes its own record, and Route 53 takes out one that is dead. An address floats in AWS only by calls of the
# EC2 API, which keepalived does not make; the rule for protocol 112 is for networks of your own where VRRP works.
#
# Not validated without a network and the provider: everything in this folder but its formatting, and the user data,
# which is the module's. Names and types of all arguments were compared once with the provider's schema (6).

terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region
}

locals {
  nodes = { for index, name in var.names : name => {
    subnet_id  = var.subnet_ids[index % length(var.subnet_ids)]
    private_ip = var.private_ips[index]
  } }

  # Secrets by reference: what is fetched by which node into which file. Rotation: change the secret; within 16 minutes
  # the file is new. pyconfd reads a new token by itself; for a new certificate haproxy is reloaded, which ends nothing.
  secrets = merge(
    { "/etc/pyconfd/token" = { secret = aws_secretsmanager_secret.token.arn, owner = "root:pyconfd", reload = [] } },
    { for name, arn in var.certificate_secret_arns : "/etc/haproxy/certs/${name}.pem" => {
      secret = arn, owner = "root:haproxy", reload = ["haproxy.service"]
    } },
  )
}

module "pyconfd" {
  source = "../.."

  nodes = [for name in var.names : {
    name            = name
    addresses       = [local.nodes[name].private_ip]
    health_check_id = aws_route53_health_check.node[name].id
  }]
  kubernetes  = { api_servers = var.api_servers, ca_pem = file(var.ca_file), cluster = var.cluster }
  credentials = { token_file = "/etc/pyconfd/token" }
  presets     = var.presets
  fragments   = { for name in fileset(var.fragments, "*.{conf,tmpl}") : name => file("${var.fragments}/${name}") }
  profile     = "cloud"

  dns = {
    names          = [var.dns_name]
    owner          = var.names[0]
    zone_id        = aws_route53_zone.this.zone_id
    mode           = "multivalue"
    address_source = "imds-public"
  }

  extra_files = [
    { path = "/opt/pyconfd-secrets/fetch-secrets", content = file("${path.module}/fetch-secrets.py"), permissions = "0755" },
    { path = "/etc/pyconfd-secrets.json", content = jsonencode({ region = var.region, files = local.secrets }) },
    { path = "/etc/systemd/system/pyconfd-secrets.service", content = file("${path.module}/pyconfd-secrets.service") },
    { path = "/etc/systemd/system/pyconfd-secrets.timer", content = file("${path.module}/pyconfd-secrets.timer") },
  ]
  extra_commands = [
    ["systemctl", "daemon-reload"],
    ["systemctl", "start", "pyconfd-secrets.service"],
    ["systemctl", "enable", "--now", "pyconfd-secrets.timer"],
    # Until the token was there pyconfd could not log in; it has tried again all the time.
    ["systemctl", "enable", "--now", "pyconfd-dns.service", "pyconfd-dns-withdraw.service"],
  ]
}

# The machines

resource "aws_network_interface" "node" {
  for_each = local.nodes

  subnet_id       = each.value.subnet_id
  private_ips     = [each.value.private_ip]
  security_groups = [aws_security_group.node.id]
}

resource "aws_eip" "node" {
  for_each = local.nodes

  domain = "vpc"
  tags   = { Name = each.key }
}

resource "aws_eip_association" "node" {
  for_each = local.nodes

  allocation_id        = aws_eip.node[each.key].id
  network_interface_id = aws_network_interface.node[each.key].id
}

resource "aws_instance" "node" {
  for_each = local.nodes

  ami                         = var.ami
  instance_type               = var.instance_type
  iam_instance_profile        = aws_iam_instance_profile.node.name
  user_data_base64            = module.pyconfd.user_data_gzip_base64[each.key]
  user_data_replace_on_change = false # a new file reaches a running node by your own means; a new node gets it

  network_interface {
    device_index         = 0
    network_interface_id = aws_network_interface.node[each.key].id
  }

  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    encrypted = true
  }

  tags = { Name = each.key }
}

# What may reach them

resource "aws_security_group" "node" {
  name        = "${var.names[0]}-pyconfd"
  description = "Load balancers"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = toset(["80", "443"])

  security_group_id = aws_security_group.node.id
  description       = "Clients, and the health checks of Route 53"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.key)
  to_port           = tonumber(each.key)
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_ingress_rule" "vrrp" {
  security_group_id            = aws_security_group.node.id
  description                  = "VRRP between the load balancers, and from nobody else"
  ip_protocol                  = "112"
  referenced_security_group_id = aws_security_group.node.id
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.node.id
  description       = "Pods, API servers, AWS"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

# What they may do

resource "aws_iam_role" "node" {
  name = "${var.names[0]}-pyconfd"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.amazonaws.com" } }]
  })
}

resource "aws_iam_instance_profile" "node" {
  name = aws_iam_role.node.name
  role = aws_iam_role.node.name
}

resource "aws_iam_role_policy" "names" {
  name = "names"
  role = aws_iam_role.node.id
  # That of docs/route53.md, with this zone and this name, and without a look at other zones: dns.zone_id is set.
  policy = templatefile("${path.module}/policy.json.tftpl", { zone_id = aws_route53_zone.this.zone_id, name = var.dns_name })
}

resource "aws_iam_role_policy" "secrets" {
  name = "secrets"
  role = aws_iam_role.node.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = "secretsmanager:GetSecretValue"
      Resource = [for file in local.secrets : file.secret]
    }]
  })
}

# Terraform owns the secret, and never its value, which would stand in the state:
#   aws secretsmanager put-secret-value --secret-id ... --secret-string "$(kubectl create token ...)"
resource "aws_secretsmanager_secret" "token" {
  name        = "${var.names[0]}/pyconfd/token"
  description = "Bearer token with which pyconfd reads the cluster: pyconfd rbac prints its rights"
}

# Names: Terraform owns the zone and the health checks, pyconfd the records in it

resource "aws_route53_zone" "this" {
  name = var.zone
}

resource "aws_route53_health_check" "node" {
  for_each = local.nodes

  ip_address        = aws_eip.node[each.key].public_ip
  port              = 80
  type              = "TCP"
  request_interval  = 10
  failure_threshold = 3
  tags              = { Name = each.key }
}
