output "user_data" {
  description = "cloud-init user data for each node, by its name."
  value       = local.user_data

  precondition {
    condition     = alltrue([for text in values(local.user_data) : length(base64gzip(text)) * 3 / 4 <= 16384])
    error_message = "The user data of a node is larger than 16 KB even when compressed, which EC2 does not take: put the fragments into the image instead."
  }
}

output "user_data_gzip_base64" {
  description = "The same, compressed and in Base64, as aws_instance.user_data_base64 takes it."
  value       = { for name, text in local.user_data : name => base64gzip(text) }
}

output "settings" {
  description = "The pyconfd.toml of each node, to read or to check."
  value       = local.settings
}

output "peers" {
  description = "The nodes' own addresses as networks, between which VRRP (protocol 112) has to pass."
  value       = [for address in flatten(var.nodes[*].addresses) : "${address}/${strcontains(address, ":") ? 128 : 32}"]
}
